"""Review requests: a rule may say that a result with ungrounded values, or a failed stage, needs a person.

The request is a message of the transaction that ends the run; the tasks module offers it as a task, which a person, a
script or an agent pulls. The metadata of the etl task holds the request until it is answered, and guards what follows:
an answer to another request changes nothing. A retry, a cancel and a deletion withdraw it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.etl.domain import REVIEW, EtlTask, ReviewPolicy, ReviewReason, ReviewStatus, Rule
from penstock.etl.store import rules
from penstock.kernel.db import Tx
from penstock.messages import ReviewRequested, ReviewWithdrawn

MAX_LISTED = 50  # pointers in a prompt
MAX_FIELDS_BYTES = 65_536  # of a result that goes with the request; a larger one is read with GET
TITLE_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class ReviewQuestion:
    """What a reviewer is asked, and the values so far."""

    reason: ReviewReason
    prompt: str
    fields: Any = None


def ungrounded_question(task: EtlTask, pointers: Sequence[str], fields: Any) -> ReviewQuestion:
    """The question about values that were not found in the document."""
    listed = "\n".join(f"- {pointer or '/'}" for pointer in pointers[:MAX_LISTED])
    more = f"\n- and {len(pointers) - MAX_LISTED} more" if len(pointers) > MAX_LISTED else ""
    prompt = (
        f"These values of {task.filename} were not found in the document:\n\n{listed}{more}\n\n"
        f"Compare the fields with the document and push the whole corrected result. {_sources(task)}"
    )
    return ReviewQuestion(reason=ReviewReason.UNGROUNDED, prompt=prompt, fields=fields)


def failure_question(task: EtlTask) -> ReviewQuestion:
    """The question about a document that no stage could process."""
    stage = task.metadata.get("error_stage")
    prompt = (
        f"Stage {stage} failed on {task.filename}: {task.error}\n\n"
        f"Read the document and push the result, as result_schema describes it. {_sources(task)}"
    )
    return ReviewQuestion(reason=ReviewReason.FAILED, prompt=prompt)


def _sources(task: EtlTask) -> str:
    path = f"/api/v1/etl/tasks/{task.id}"
    return f"The document is {task.s3_key}; GET {path}/markdown reads its text, GET {path}/result its result."


async def find_policy(tx: Tx, task: EtlTask, reason: ReviewReason) -> tuple[Rule, ReviewPolicy] | None:
    """The rule of a task and its review policy, if the policy has this reason."""
    rule = await rules.get_rule_version(tx, task.rule_id, task.rule_version)
    policy = rule.body.review
    return (rule, policy) if policy is not None and reason in policy.when else None


async def request(tx: Tx, task: EtlTask, question: ReviewQuestion) -> tuple[EtlTask, ReviewRequested | None]:
    """The task with its review request, and the message to send once it is written; None without a policy."""
    found = await find_policy(tx, task, question.reason)
    if found is None:
        return task, None
    rule, policy = found
    message = ReviewRequested(
        request=_request_id(task, 1),
        origin=f"etl:{task.id}",
        project_id=policy.project_id,
        queue_id=policy.queue_id,
        title=f"Review {task.filename}"[:TITLE_CHARS],
        prompt=question.prompt,
        fields=question.fields,
        result_schema=rule.body.json_schema,
    )
    review = {
        "state": ReviewStatus.WAITING.value,
        "reason": question.reason.value,
        "request": message.request,
        "round": 1,
        "project_id": policy.project_id,
        "queue_id": policy.queue_id,
    }
    return replace(task, metadata={**task.metadata, REVIEW: review}), message


def request_again(task: EtlTask, rule: Rule, errors: Sequence[str]) -> tuple[EtlTask, ReviewRequested]:
    """The task with its next request, and the message: the answer was refused for these errors."""
    review = task.metadata[REVIEW]
    number = review["round"] + 1
    message = ReviewRequested(
        request=_request_id(task, number),
        origin=f"etl:{task.id}",
        project_id=review["project_id"],
        queue_id=review["queue_id"],
        title=f"Review {task.filename}"[:TITLE_CHARS],
        prompt=f"The answer about {task.filename} was refused. {_sources(task)}",
        result_schema=rule.body.json_schema,
        replaces=review["request"],
        errors=list(errors),
    )
    again = {**review, "request": message.request, "round": number}
    return replace(task, metadata={**task.metadata, REVIEW: again}), message


def is_waiting_for(task: EtlTask, request_id: str) -> bool:
    """Whether a task waits for the answer of this request."""
    return task.review_status is ReviewStatus.WAITING and task.metadata[REVIEW]["request"] == request_id


def withdraw(tx: Tx, task: EtlTask) -> EtlTask:
    """The task without a review that waits; its request is withdrawn. An answered one is kept."""
    if task.review_status is not ReviewStatus.WAITING:
        return task
    tx.send(ReviewWithdrawn(request=task.metadata[REVIEW]["request"], origin=f"etl:{task.id}"))
    return replace(task, metadata={name: value for name, value in task.metadata.items() if name != REVIEW})


def _request_id(task: EtlTask, number: int) -> str:
    return f"etl:{task.id}:{task.run}:{number}"
