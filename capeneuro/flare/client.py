"""A site's FLARE process, cut down to what a study needs.

FLARE's client answers whoever reaches it through the server, other sites too: it shows
files of its host (a shell command whose rights it checks only if the request asks for
that), and a job that is named like a folder of the kit replaces that folder, and with
it the site's settings. Here it starts and ends jobs and does nothing else. Run by
:mod:`.daemon` in place of FLARE's own ``client_train``.
"""

import re
import runpy
from typing import Any

from nvflare.private.admin_defs import error_reply
from nvflare.private.defs import RequestHeader, new_cell_message
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

NEEDED = {
    "CheckResourceProcessor",
    "CancelResourceProcessor",
    "ReportResourcesProcessor",
    "DeployProcessor",
    "StartJobProcessor",
    "AbortAppProcessor",
    "AbortTaskProcessor",
    "NotifyJobStatusProcessor",
}
JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
dispatch = FedAdminAgent._dispatch_request


def cut_down() -> None:
    """Restrict this process to starting and ending jobs."""
    needed_processors = [
        processor
        for processor in ClientRequestProcessors.request_processors
        if type(processor).__name__ in NEEDED
    ]
    ClientRequestProcessors.request_processors[:] = needed_processors
    FedAdminAgent._dispatch_request = checked


def checked(agent: FedAdminAgent, request: Any) -> Any:
    """Answer a request unless its job is named like a folder of the kit."""
    job = request.payload.get_header(RequestHeader.JOB_ID)
    # Privacy: a job's folder is emptied before anything of the job is checked.
    if job is not None and not JOB.fullmatch(str(job)):
        return new_cell_message({}, error_reply("invalid job"))
    return dispatch(agent, request)


if __name__ == "__main__":
    cut_down()
    runpy.run_module("nvflare.private.fed.app.client.client_train", run_name="__main__")
