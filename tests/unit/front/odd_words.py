"""Bad and odd command lines. A row: the words, the exit code, and what the paragraph must name.

Words are split at blanks; {L} is a small layer, {M} the folder of odd models. A row with exit
code 0 is odd and must work, and one with 1 finds what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

LAYER = "--n 1024 --k 512"


@dataclass(frozen=True, slots=True)
class Row:
    """One command line.

    Attributes:
        words: of the command.
        code: exit code.
        named: what its paragraph, or where the code is 0 or 1 its output, must hold.
        env: environment variables.
    """

    words: str
    code: int
    named: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    @property
    def refused(self) -> bool:
        return self.code > 1

    def split(self, models: str) -> list[str]:
        """The words as the command gets them; `␣` stands for a blank, `EMPTY` for no letters."""
        text = self.words.replace("{L}", LAYER).replace("{M}", models)
        return ["" if word == "EMPTY" else word.replace("␣", " ") for word in text.split()]


def bad(words: str, *named: str, **env: str) -> Row:
    return Row(words, 2, named, env)


def good(words: str, *named: str, **env: str) -> Row:
    return Row(words, 0, named, env)


def found(words: str, *named: str, **env: str) -> Row:
    """A question whose answer is that something is wrong: told on stdout, exit code 1."""
    return Row(words, 1, named, env)


LONG = "x" * 300
DEEP = "[" * 200_000
DIGITS = "9" * 5000
SHORT = "mma bm8 wm8 bn16 wn16 bk1024 wk8 ns3 sk1 so:acc mc1 t:sta d:mag"

NUMBERS = [
    bad("best --n 4095 --k 512", "4095", "multiple of 8", "4096"),
    bad("best --n 1024 --k 500", "500", "multiple of 32", "512"),
    bad("best --n 0 --k 512", "n = 0", "1048576"),
    bad("best --n -8 --k 512", "n = -8"),
    bad("best --n 1048584 --k 512", "1048584", "1048576"),
    bad("best --n 1e3 --k 512", "1e3"),
    bad("best --n 1024.0 --k 512", "1024.0"),
    bad("best --n EMPTY --k 512", "''"),
    bad("best --n ten --k 512", "ten"),
    bad(f"best --n {DIGITS} --k 512", "integer"),
    bad("best --n 1024", "--k None"),
    bad("best --k 512", "--n None"),
    bad("best", "--model"),
    bad("best {L} --m -1", "-1", "batch size"),
    bad("best {L} --m 1048577", "1048577", "1048576"),
    bad("best {L} --m 1,,8", "''"),
    bad("best {L} --m 1.5", "1.5"),
    bad("best {L} --m 1;8", "1;8"),
    bad("best {L} --m [1,8]", "[1"),
    bad("best {L} --m EMPTY", "integer"),
    bad("best {L} --m True", "True"),
    bad(f"best {{L}} --m {DIGITS}", "integer"),
    bad("best {L} --group 100", "100", "32, 64, 128"),
    bad("best {L} --group 0", "group size 0"),
    bad("best {L} --group -2", "-2"),
    bad("best {L} --group 64.0", "64.0"),
    bad("best {L} --group all", "all"),
    bad("best --n 1024 --k 544 --group 64", "does not divide"),
    bad("best {L} --tp 2", "--tp 2", "--model"),
    bad("best --model llama-3.1-8b --tp 0", "tp = 0"),
    bad("best --model llama-3.1-8b --tp -1", "tp = -1"),
    bad("best --model llama-3.1-8b --tp 3", "tp = 3"),
    bad("best --model llama-3.1-8b --tp 1048576", "tp = 1048576"),
    bad("best --model llama-3.1-8b --tp two", "two"),
    bad("tune {L} --m 0", "least is 1"),
    bad("tune {L} --trials 0", "0 trials"),
    bad("tune {L} --trials -5", "-5"),
    bad("tune {L} --trials many", "many"),
    bad("tune {L} --seconds 0", "0"),
    bad("tune {L} --seconds -1", "-1"),
    bad("tune {L} --seconds nan", "nan"),
    bad("tune {L} --seconds inf", "inf"),
    bad("tune {L} --seconds soon", "soon"),
    bad("tune {L} --seed x", "x"),
    bad("emit {L} --m 0", "0"),
    bad("emit {L} --m 1,8", "1,8"),
    bad("one {L} --m 0", "0"),
    bad("space {L} --m 0", "least is 1"),
    bad("check {L} --m 0", "least is 1"),
    bad("check {L} --schedules 0", "0"),
    bad("check {L} --schedules 99", "99"),
    bad("export {L} --m 0 --out b", "M = 0"),
    bad("export --n 1048576 --k 1048576 --out b", "GiB", "rank's share"),
    bad("list --limit 0", "0"),
    bad("list --limit -1", "-1"),
    bad("list --limit x", "x"),
    bad("selfcheck --configs -1", "-1"),
    bad("selfcheck --repeats 0", "0"),
    bad("selfcheck --soak 0", "0"),
    bad("selfcheck --lanes 4", "--soak N"),
    bad("selfcheck --soak 5 --lanes 65", "65"),
    bad("selfcheck --shapes 0", "0"),
    bad("bench {L} --rounds 1", "1"),
    bad("bench {L} --seed x", "x"),
    bad("best {L} --m 0", "M = 0", "least is 1"),
    bad("best {L} --m 0,8 --json", "M = 0"),
    good("best {L} --m 8,8,1 --json", '"m": 8'),
    good("best {L} --m 1048576 --json", "1048576"),
    good("best {L} --group -1 --json", '"group_size": 512'),
    good("best {L} --group 512 --json", '"group_size": 512'),
    good("best --n 1048576 --k 1048576 --json", "1048576"),
]

CHOICES = [
    bad("best {L} --dtype fp32", "fp32", "bf16"),
    bad("best {L} --dtype EMPTY", "fp16"),
    bad("best {L} --dtype FP8", "FP8"),
    bad("export {L} --dtype both --out b", "both"),
    bad("best {L} --zero float", "float", "sym"),
    bad("best {L} --zero 8", "8", "sym"),
    bad("best {L} --protocol graph", "graph", "chained"),
    bad("best {L} --protocol both", "both"),
    bad("export {L} --protocol both --out b", "both"),
    bad("tune {L} --budget huge", "huge", "quick"),
    bad("tune {L} --sampler cmaes", "cmaes", "tpe"),
    bad("tune {L} --protocol graph", "graph"),
    bad("emit {L} --arch sm_10", "sm_10", "sm_90a"),
    bad("check {L} --arch sm_100", "sm_100"),
    bad("check --covering cutlass", "cutlass", "mma"),
    bad("check --covering mma --n 4096", "--n", "--covering mma", "no effect"),
    bad("check --covering mma --m 8", "--m", "--covering mma", "no effect"),
    bad("list losers", "losers", "winners"),
    bad("list trials --status sad", "sad", "wrong"),
    bad("db steal file.txt", "steal", "export"),
    bad("db export", "FILE"),
    bad("db", "export"),
    bad("db import no.jsonl --all", "--all belongs to export"),
    bad("bench {L} --contenders fastest", "fastest", "cublas"),
    bad("bench --layers 4096", "4096"),
    bad("bench --layers 4096x", "4096x"),
    bad("bench --layers 4096x4096,", "''"),
    bad("bench --layers 4095x4096", "4095"),
    bad("bench {L} --layers 64x128", "exclude each other"),
    bad("bench", "no layers are named"),
    bad("bench {L}", "not in this machine"),
    bad("one {L}", "not in this machine"),
    bad("one --trial x", "x"),
    bad("selfcheck --soak 5 --shapes 5", "exclude each other"),
    bad("selfcheck --gpu-faults", "--soak N"),
    bad("selfcheck --shapes 5 {L}", "leave out --n"),
    bad("selfcheck --soak 5 --device 0", "--device"),
    bad("selfcheck {L}", "none is here"),
]

NAMES = [
    bad("tun", "did you mean tune"),
    bad("tuen", "did you mean tune"),
    bad("exports", "did you mean export"),
    bad("BEST", "did you mean best"),
    bad("zzz", "'zzz'", "doctor"),
    bad("EMPTY {L}", "command"),
    bad("--verbose", "--verbose"),
    bad("best {L} --modle x", "--modle", "--model"),
    bad("best {L} --gpuu h200", "--gpu"),
    bad("best {L} extra", "extra"),
    bad("bench {L} --json rows.jsonl", "rows.jsonl"),
    bad("best {L} --gpu 4090", "did you mean rtx4090"),
    bad("best {L} --gpu RTX␣4080", "rtx4090"),
    bad("best {L} --gpu h20", "h200"),
    bad("best {L} --gpu voodoo2", "voodoo2", "h200"),
    bad("best {L} --gpu EMPTY", "''", "h200"),
    bad(f"best {{L}} --gpu {LONG}", "h200"),
    bad("tune {L} --gpu tesla", "tesla"),
    bad("tune {L} --device 0", "'0'"),
    bad("tune {L} --device EMPTY", "''"),
    bad("tune {L} --device -1", "'-1'"),
    bad("tune {L} --device GPU-x", "GPU-x"),
    bad("doctor --device 9", "'9'"),
    bad("best --model llama3-8b", "did you mean llama-3-8b"),
    bad("best --model llama3.1-8b", "llama-3.1-8b"),
    bad("best --model LLAMA", "'LLAMA'", "config.json"),
    bad("best --model gpt-9", "gpt-9", "config.json"),
    bad("best --model EMPTY", "''"),
    bad("best --model ␣", "config.json"),
    bad(f"best --model {LONG}", "config.json"),
    bad(f"best --model /{LONG}", "cannot be read"),
    bad("best --model meta-llama/Llama-9-8B", "Llama-9-8B"),
    bad("best --model Qwen/Qwen2.5-7B-Instruct-AWQ", "did you mean qwen2.5-7b"),
    bad("best --model a/b/c", "cannot be read"),
    bad("best --model ~nouser/config.json", "~nouser", "home"),
    bad("best --model nowhere.json", "nowhere.json"),
    bad("best --model {M}", "cannot be read"),
    bad("best {L} --model llama-3.1-8b", "exclude"),
    bad("report --model gpt-9", "gpt-9"),
    good("best --model meta-llama/Llama-3.1-8B-Instruct --json", '"n": 6144'),
    good("best --model LLAMA-3.1-8B --json", '"n": 6144'),
    good("best {L} --gpu NVIDIA␣H200 --json", "NVIDIA H200"),
    good("best {L} --gpu RTX4090 --json", "RTX 4090"),
]

MODELS = [
    bad("best --model {M}/hollow", "hollow", "cannot be read"),
    bad("best --model {M}/half-known", "hidden_size"),
    bad("best --model {M}/no-type", "model_type"),
    bad("best --model {M}/strange-type", "quantum"),
    bad("best --model {M}/experts-word", "num_local_experts = '8'"),
    bad("best --model {M}/bias-word", "attention_bias = 'false'"),
    bad("best --model {M}/many-heads", "many-heads", "5000"),
    bad("best --model {M}/negative", "intermediate_size = -1"),
    bad("best --model {M}/float", "4096.0"),
    bad("best --model {M}/huge", "layer qkv", "1048576"),
    bad("best --model {M}/latent", "latent"),
    bad("best --model {M}/bits-8", "8 bits"),
    bad("best --model {M}/act-order", "desc_act"),
    bad("best --model {M}/fp8", "'fp8'"),
    bad("best --model {M}/strange-dtype", "int3", "--dtype"),
    bad("best --model {M}/list", "list"),
    bad("best --model {M}/text-word", "half of a surrogate pair"),
    bad("best --model {M}/deep", "nested too deep"),
    bad("best --model {M}/deep-object", "nested too deep"),
    bad("best --model {M}/digits", "not JSON", "5000 digits"),
    bad("best --model {M}/binary", "not JSON"),
    bad("best --model {M}/empty", "not JSON"),
    bad("best --model {M}/cut", "not JSON"),
    bad("best --model {M}/nan", "NaN is no number of JSON"),
    bad("best --model {M}/nul", "holds a NUL"),
    bad("best --model {M}/sound --tp 64", "tp = 64"),
    bad("tune --model {M}/deep", "nested too deep"),
    bad("report --model {M}/deep", "nested too deep"),
    bad("bench --model {M}/digits", "not JSON"),
    bad("bench --checkpoint {M}/sound", "no quantization_config"),
    bad("bench --checkpoint {M}/bits-8", "8 bits"),
    bad("bench --checkpoint {M}/act-order", "desc_act"),
    bad("bench --checkpoint {M}/deep", "nested too deep"),
    bad("bench --checkpoint nowhere", "nowhere"),
    bad("bench --checkpoint {M}/sound --group 64", "--group and --zero follow"),
    good("best --model {M}/sound --json", '"dtype": "fp16"'),
    good("best --model {M}/bf16 --json", '"dtype": "bf16"'),
    good("best --model {M}/bf16 --dtype fp16 --json", '"dtype": "fp16"'),
    good("best --model {M}/bits-8 --group 64 --zero int --json", '"group_size": 64'),
]

CONFIGS = [
    bad("emit {L} --config {", "--config", "not JSON"),
    bad("emit {L} --config []", "family"),
    bad("emit {L} --config null", "family"),
    bad("emit {L} --config 7", "family"),
    bad('emit {L} --config {"family":"cutlass"}', "cutlass", "mma"),
    bad('emit {L} --config {"family":7}', "family"),
    bad('emit {L} --config {"family":"mma","speed":11}', "speed"),
    bad(f"emit {{L}} --config {DEEP}", "nested too deep"),
    bad(f"emit {{L}} --config {DIGITS}", "no config and no file"),
    bad(f"check {{L}} --config {DEEP}", "nested too deep"),
    bad(f"one {{L}} --config {DIGITS}", "no config and no file"),
    bad("emit {L} --config @~nouser/c.json", "--config", "~nouser", "home"),
    bad("check {L} --config @nowhere.json", "--config", "nowhere.json", "cannot be read"),
    bad("one {L} --config @models", "--config", "cannot be read"),
    bad("emit {L} --config @models/deep/config.json", "nested too deep"),
    bad("emit {L} --config file.txt", "--config", "'text'", "no config and no file"),
    bad("best {L}", "PTXTUNE_PIN", "no config and no file", PTXTUNE_PIN="fastest please"),
    bad("best {L}", "PTXTUNE_PIN", "~nouser", "home", PTXTUNE_PIN="@~nouser/c.json"),
    good("best {L} --json", "pinned by PTXTUNE_PIN", PTXTUNE_PIN=SHORT),
    good("best {L} --json", "pinned by PTXTUNE_PIN", PTXTUNE_PIN="@pin.json"),
    bad("best {L}", "PTXTUNE_PIN", "cutlass", PTXTUNE_PIN='{"family": "cutlass"}'),
    bad("best {L}", "PTXTUNE_PIN", "nested", PTXTUNE_PIN=DEEP),
    bad("tune {L}", "PTXTUNE_PIN", "not JSON", PTXTUNE_PIN="{"),
    bad("export {L} --out b", "PTXTUNE_PIN", "not JSON", PTXTUNE_PIN="{"),
]

PATHS = [
    bad("export {L} --out ~nouser/b", "~nouser", "home"),
    bad("export {L} --out EMPTY", "''"),
    bad("export {L}", "--out"),
    bad("export {L} --out file.txt", "file.txt"),
    bad("export {L} --out web", "web"),
    bad("tune {L}", "PTXTUNE_CACHE_DIR", "~nouser", PTXTUNE_CACHE_DIR="~nouser/cache"),
    bad("tune {L} --cache-dir ~nouser/cache", "~nouser", "home"),
    bad("export {L} --out b --cache-dir ~nouser/c", "~nouser", "home"),
    bad("export {L} --out b", "~nouser", "home", PTXTUNE_CACHE_DIR="~nouser/cache"),
    bad("emit {L} --compile --cache-dir ~nouser/c", "~nouser", "home"),
    bad("export {L} --out web --force", "web", "not a bundle"),
    bad("export {L} --out bundles/deep --force", "deep", "no manifest.json of ours"),
    bad("export {L} --out b --measured", "only measured winners", "M = 1"),
    bad("export --n 1024 --out b --force --k 500", "500"),
    bad("db import nowhere.jsonl", "nowhere.jsonl"),
    bad("db import models", "models"),
    bad("db import file.txt", "file.txt"),
    bad("selfcheck --replay nowhere.jsonl", "nowhere.jsonl"),
    bad("selfcheck --replay file.txt", "file.txt"),
]

DATABASES = [
    bad("best {L} --db ~nouser/x.db", "~nouser", "home"),
    bad("tune {L} --db ~nouser/x.db", "~nouser", "home"),
    bad("list --db EMPTY", "database", "empty"),
    bad("best {L}", "~nouser", "home", PTXTUNE_DB="~nouser/x.db"),
    bad("best {L} --db postgresql://u:p@host:abc/x", "u:***@host:abc", "a number as port"),
    bad("tune {L} --db postgresql://u:p@host:abc/x", "u:***@host:abc", "a number as port"),
    bad(f"best {{L}} --db {LONG}", "too long"),
    bad(f"tune {{L}} --db {LONG}", "too long"),
    bad(f"db import trials.jsonl --db {LONG}", "trials.jsonl"),
    bad("best {L} --db knwon/x.db", "knwon", "does not exist"),
    bad("list --db knwon.db", "knwon.db", "does not exist"),
    bad("report --db knwon.db", "knwon.db", "does not exist"),
    bad("export {L} --out b --db knwon.db", "knwon.db", "does not exist"),
    bad("db export new.jsonl --db knwon.db", "knwon.db", "does not exist"),
    bad("db check --db knwon.db", "knwon.db", "does not exist"),
    bad("db upgrade --db knwon.db", "knwon.db", "does not exist"),
    bad("best {L} --db models", "models", "is a folder"),
    bad("best {L} --db file.txt", "file.txt"),
    bad("list trials --run 9223372036854775808", "no run 9223372036854775808", "list runs"),
    bad(f"list trials --run {DIGITS}", "--run"),
    bad("list trials --run -1", "no run -1"),
    bad("one --trial 9223372036854775808", "9223372036854775808"),
]

MANIFESTS = [
    bad("inspect nowhere", "nowhere", "not a bundle"),
    bad("inspect web", "web", "not a bundle"),
    bad("inspect file.txt", "file.txt"),
    bad("inspect ~nouser/b", "~nouser", "home"),
    bad("inspect EMPTY", "''"),
    bad("db export EMPTY", "''"),
    bad("report --html EMPTY", "''"),
    bad("report --html ~nouser/x.html", "home"),
    bad("bench {L} --json-file EMPTY", "''"),
    bad("bench --checkpoint EMPTY", "''"),
    bad("selfcheck --replay EMPTY", "''"),
    found("inspect bundles/deep", "damaged: bundles/deep", "nested too deep"),
    found("inspect bundles/digits", "damaged: bundles/digits", "5000 digits"),
    found("inspect bundles/nan", "damaged: bundles/nan", "NaN is no number of JSON"),
    found("inspect bundles/nul", "damaged: bundles/nul", "holds a NUL"),
    found("inspect bundles/surrogate", "damaged: bundles/surrogate", "half of a surrogate pair"),
    found("inspect bundles/binary", "damaged: bundles/binary", "not UTF-8"),
    found("inspect bundles/empty", "damaged: bundles/empty", "not JSON"),
    found("inspect bundles/cut", "damaged: bundles/cut", "not JSON"),
    found("inspect bundles/list", "damaged: bundles/list", "list"),
]


def rows() -> Iterator[Row]:
    """All of them."""
    for part in (NUMBERS, CHOICES, NAMES, MODELS, CONFIGS, PATHS, DATABASES, MANIFESTS):
        yield from part
