"""Exchanges of given sizes over FLARE without any work: what the engine alone costs.

For `federation.py` only; its kits allow these classes, a study's kits do not.
"""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply

TOPIC = "echo"


class EchoController(Controller):
    """Repeat exchanges, given as (bytes, bytes back) by site; write their seconds."""

    def __init__(self, exchanges: str, results: str) -> None:
        super().__init__()
        self._exchanges, self._results = Path(exchanges), Path(results)

    def start_controller(self, fl_ctx) -> None:
        """FLARE asks for this method; there is nothing to start."""

    def stop_controller(self, fl_ctx) -> None:
        """FLARE asks for this method; there is nothing to stop."""

    def process_result_of_unknown_task(self, *_) -> None:
        """FLARE asks for this method; no tasks are used."""

    def control_flow(self, abort_signal, fl_ctx) -> None:
        """Wait for the sites, then exchange."""
        exchanges = json.loads(self._exchanges.read_text())
        names = list(exchanges[0])
        while not all(self._one(name, 1, 1) for name in names):
            time.sleep(0.2)
        seconds = []
        for exchange in exchanges:
            start = time.perf_counter()
            with ThreadPoolExecutor(len(names)) as pool:
                list(pool.map(lambda n, e=exchange: self._one(n, *e[n]), names))
            seconds.append(time.perf_counter() - start)
        self._results.write_text(json.dumps(seconds))

    def _one(self, name: str, size: int, back: int) -> bool:
        request = Shareable()
        request["raw"], request["back"] = bytes(size), back
        with self._engine.new_context() as context:
            reply = self._engine.send_aux_request(
                targets=[name], topic=TOPIC, request=request, timeout=30, fl_ctx=context
            ).get(name)
        right = reply is not None and reply.get_return_code() == ReturnCode.OK
        return right and len(reply["raw"]) == back


class EchoExecutor(Executor):
    """A site that answers with as many bytes as it is asked for."""

    def __init__(self, study: str) -> None:
        super().__init__()  # the study that a site's kit lists

    def handle_event(self, event_type, fl_ctx) -> None:
        """Answer from the start of a job on."""
        if event_type == EventType.START_RUN:
            engine = fl_ctx.get_engine()
            engine.register_aux_message_handler(TOPIC, self._handle)

    def execute(self, task_name, shareable, fl_ctx, abort_signal) -> Shareable:
        """FLARE asks for this method; no tasks are used."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _handle(self, topic, request, fl_ctx) -> Shareable:
        reply = make_reply(ReturnCode.OK)
        reply["raw"] = bytes(request["back"])
        return reply
