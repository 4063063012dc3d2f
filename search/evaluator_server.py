"""Inside the GPU worker process: turns JSON requests into calls of an Evaluator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

from search.child_main import resolve
from search.evaluator import Evaluator, FinalsRequest
from search.messages import outcome_to_dict, request_from_dict


def make_handler(options: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """The request handler around the evaluator that options name.

    Args:
        options: {"factory": "module:function", "options": {...}}; the function, called with the
            inner options, returns an Evaluator.
    """
    make_evaluator = cast(Callable[[dict[str, Any]], Evaluator], resolve(options["factory"]))
    evaluator = make_evaluator(options["options"])

    def handle(message: dict[str, Any]) -> Any:
        if message["kind"] == "device":
            return {
                "device": asdict(evaluator.device()),
                "driver_version": evaluator.driver_version(),
            }
        request = request_from_dict(message)
        if isinstance(request, FinalsRequest):
            return [outcome_to_dict(item) for item in evaluator.finals(request)]
        return outcome_to_dict(evaluator.evaluate(request))

    return handle
