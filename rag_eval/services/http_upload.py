"""Upload JSON over plain HTTP: experiments to orq.ai, traces to a collector of OpenTelemetry."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from rag_eval.errors import RequestRefusedError, ServiceError
from rag_eval.retry import PATIENT, Failure, RetryPolicy, retry_after_of, status_may_pass

REFUSED = {400, 413, 415, 422}


@dataclass(frozen=True)
class Receiver:
    """A service as messages name it, and the environment variables that hold its address and its key."""

    name: str
    address_variable: str
    key_variable: str

    def post(
        self, address: str, headers: Mapping[str, str], body: bytes, *, timeout: float, policy: RetryPolicy = PATIENT
    ) -> httpx.Response:
        """Post JSON until it is taken and return the answer.

        Raises:
            ServiceError: The service did not take it, after some attempts where another could help.
            RequestRefusedError: The service works and does not take this body.
        """

        def attempt(seconds_left: float) -> httpx.Response | Failure:
            try:
                answer = httpx.post(
                    address,
                    headers={**headers, "Content-Type": "application/json"},
                    content=body,
                    timeout=min(timeout, seconds_left),
                )
            except (httpx.UnsupportedProtocol, httpx.InvalidURL):
                return Failure("its address is not valid", f"check {self.address_variable}, such as https://host")
            except UnicodeError:
                return Failure(
                    "its address or its key has unusable characters",
                    f"check {self.address_variable} and {self.key_variable}",
                )
            except httpx.TransportError as error:
                return Failure(type(error).__name__, "check the network and the address", may_pass=True)
            if answer.status_code in (401, 403):
                return Failure(f"it answered {answer.status_code}", f"check {self.key_variable}")
            if answer.status_code in REFUSED:
                raise RequestRefusedError(f"{self.name} does not take these results (it answered {answer.status_code})")
            if not answer.is_success:
                may_pass, after = status_may_pass(answer.status_code), retry_after_of(answer.headers)
                return Failure(f"it answered {answer.status_code}", "try again later", may_pass, after)
            return answer

        answer = policy.run(attempt, threading.Event())
        if isinstance(answer, Failure):
            raise ServiceError(f"{self.name} did not take the results ({answer.reason}): {answer.advice}")
        return answer
