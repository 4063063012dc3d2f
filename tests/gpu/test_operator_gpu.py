"""The operator on a GPU: eager, compiled, exported, captured, on two streams; refusals."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ptxgen.check import compare
from ptxgen.errors import TensorError
from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data, reference_output
from ptxgen.weights.pack import pack
from ptxtune.layers.linear import W4A16Linear
from ptxtune.layers.operator import prepare_operator

pytestmark = pytest.mark.gpu

PROBLEMS = (
    Problem(512, 1024),
    Problem(512, 1024, 64, "bf16", "int"),
    Problem(512, 1024, 128, "fp16", "int", bias=True),
    Problem(512, 1024, 1024, "bf16"),
)
BATCHES = (1, 2, 7, 16, 17, 64, 65, 300, 1024)


class Made:
    """A packed layer, its inputs and what they should give."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.key = problem, problem.key()
        data = random_problem_data(problem, max(BATCHES), seed=3, device="cuda")
        self.x, self.bias = data.x, data.bias
        self.packed = pack(data.weight, problem)
        self.expected = reference_output(data.x, data.weight, problem, data.bias)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.ptxtune.w4a16_linear(x, self.packed, self.bias, self.key)

    def assert_right(self, y: Tensor) -> None:
        rows = y.reshape(-1, self.problem.n)
        result = compare(rows, self.problem, self.expected[: rows.shape[0]])
        assert result.ok, result


@pytest.fixture(scope="module", params=PROBLEMS, ids=Problem.key)
def made(request: pytest.FixtureRequest) -> Made:
    prepare_operator(request.param, torch.device("cuda"))
    return Made(request.param)


@pytest.mark.parametrize("m", BATCHES)
def test_every_batch_is_right(made: Made, m: int) -> None:
    made.assert_right(made(made.x[:m]))


def test_batches_in_any_order_give_the_same_bits(made: Made) -> None:
    """What a launch leaves in its prepared structures is nothing to the next one."""
    first = {m: made(made.x[:m]) for m in BATCHES}
    for m in (*reversed(BATCHES), 1, 300, 1, 17):
        assert torch.equal(made(made.x[:m].clone()), first[m])


def test_leading_dimensions_and_an_empty_batch(made: Made) -> None:
    made.assert_right(made(made.x[:6].view(2, 3, -1)))
    assert made(made.x[:0]).shape == (0, made.problem.n)


def test_unaligned_and_strided_rows(made: Made) -> None:
    storage = torch.empty(7 * 1032 + 3, dtype=made.x.dtype, device="cuda")
    rows = storage[3:].as_strided((7, 1024), (1029, 1))
    rows.copy_(made.x[:7])
    made.assert_right(made(rows))


def test_opcheck_passes(made: Made) -> None:
    arguments = (made.x[:5], made.packed, made.bias, made.key)
    torch.library.opcheck(torch.ops.ptxtune.w4a16_linear.default, arguments)


def test_compiled_with_any_batch(made: Made) -> None:
    compiled = torch.compile(lambda x: made(x) * 2, fullgraph=True, dynamic=True)
    for m in (3, 16, 300):
        assert torch.equal(compiled(made.x[:m]), made(made.x[:m]) * 2)


def test_exported_with_any_batch(made: Made) -> None:
    class Layer(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return made(x)

    m = torch.export.Dim("m", min=2, max=512)
    program = torch.export.export(Layer(), (made.x[:8],), dynamic_shapes=({0: m},))
    for size in (2, 40):
        assert torch.equal(program.module()(made.x[:size]), made(made.x[:size]))


def test_captured_on_a_stream_that_never_ran_it(made: Made) -> None:
    """An engine warms up on one stream and captures on another."""
    inputs = {m: made.x[:m].clone() for m in (1, 16, 64)}
    for m, x in inputs.items():
        made(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
            y = made(x)
        for _ in range(3):
            y.fill_(torch.nan)
            graph.replay()
            torch.cuda.synchronize()
            made.assert_right(y)
        x.copy_(made.x[m : 2 * m])
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(y, made(made.x[m : 2 * m]))


def test_two_streams_at_once(made: Made) -> None:
    streams = [torch.cuda.Stream() for _ in range(2)]
    parts = [made.x[:16], made.x[16:32]]
    expected = [made(x) for x in parts]
    torch.cuda.synchronize()
    seen: list[list[Tensor]] = [[], []]
    for _ in range(100):
        for index, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                seen[index].append(made(parts[index]))
    torch.cuda.synchronize()
    for index in range(2):
        assert all(torch.equal(y, expected[index]) for y in seen[index])


def test_what_does_not_fit_is_refused(made: Made) -> None:
    key = made.key
    operator = torch.ops.ptxtune.w4a16_linear
    with pytest.raises(TensorError, match="last dimension must be K"):
        operator(made.x[:2, :512], made.packed, made.bias, key)
    with pytest.raises(TensorError, match="Convert or move"):
        operator(made.x[:2].float(), made.packed, made.bias, key)
    with pytest.raises(TensorError, match=r"from ptxtune\.pack"):
        operator(made.x[:2], made.packed[16:], made.bias, key)
    with pytest.raises(TensorError, match="backward"):
        made(made.x[:2].clone().requires_grad_())


def test_a_module_in_a_model(made: Made) -> None:
    """Eager, under autocast, compiled, and on a device that it was moved to."""
    layer = W4A16Linear(
        made.problem, made.packed.cpu(), None if made.bias is None else made.bias.cpu()
    )
    layer.cuda()
    made.assert_right(layer(made.x[:5]))
    with torch.autocast("cuda", dtype=made.x.dtype):
        made.assert_right(layer(made.x[:5].float()))
    compiled = torch.compile(layer, fullgraph=True)
    made.assert_right(compiled(made.x[:5]))
    assert "default" in repr(layer)
