"""Sites of tests, without a study."""

from typing import Any

from capeneuro.config.site import SiteConfig


def site(**given: Any) -> SiteConfig:
    """Site `a` of simulated people, with what a test gives."""
    promise = {"epsilon": 1.0, "delta": 1e-5, "unit": "subject"}
    about = {"name": "a", "data": "simulated"}
    return SiteConfig.model_validate({**about, **promise, **given})
