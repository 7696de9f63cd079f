"""A site's FLARE process starts and ends jobs, and shows nothing of its host."""

import pytest

pytest.importorskip("nvflare", reason="needs the extra federated")

from nvflare.private.admin_defs import Message
from nvflare.private.defs import RequestHeader, new_cell_message
from nvflare.private.fed.client.admin import FedAdminAgent
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from capeneuro.flare import client

TOPICS = {
    "scheduler.check_resource",
    "scheduler.cancel_resource",
    "resource_manager.report_resources",
    "train.start_job",
    "train.deploy",
    "train.abort",
    "train.abort_task",
    "train.notify_job_status",
}


@pytest.fixture
def cut(monkeypatch):
    """FLARE's client, cut down for one test."""
    processors = list(ClientRequestProcessors.request_processors)
    monkeypatch.setattr(ClientRequestProcessors, "request_processors", processors)
    monkeypatch.setattr(FedAdminAgent, "_dispatch_request", client.dispatch)
    client.cut_down()
    return processors


def test_only_what_a_job_needs_is_answered(cut):
    topics = {topic for processor in cut for topic in processor.get_topics()}
    assert topics == TOPICS


def test_the_shell_was_there(cut):
    """What is cut away exists in this version, so the test above can fail."""
    from nvflare.private.fed.client.shell_cmd import ShellCommandProcessor

    assert not [p for p in cut if isinstance(p, ShellCommandProcessor)]
    assert not set(ShellCommandProcessor().get_topics()) & TOPICS


@pytest.mark.parametrize("job", ["local", "startup", "tmp", "..", "", "a/b", 5])
def test_a_job_named_like_a_folder_of_the_kit_is_refused(cut, job):
    request = Message("train.deploy", "")
    request.set_header(RequestHeader.JOB_ID, job)
    reply = FedAdminAgent._dispatch_request(None, new_cell_message({}, request))
    assert "invalid job" in reply.payload.body
