"""Messages that are lost, believed or sent again for nothing."""

from __future__ import annotations

from tests.fault.mutants.planting import SQL, Mutant, on_each

MESSAGES = "test_rabbitmq_messages.py"
UNANSWERED = "test_a_request_that_is_sent_often_enough_and_never_answered_makes_a_dead_letter"

MUTANTS = [
    Mutant(
        "messages that are acknowledged before their job is settled",
        "worker/receiver.py",
        "            self._held[attempt.fence] = [_without_body(delivery) for delivery in named.pop(attempt.fence)]\n",
        "            self.consumer.ack(named.pop(attempt.fence))\n",
        f"{MESSAGES}::test_a_worker_killed_while_it_holds_messages_loses_none[sqlite]",
    ),
    Mutant(
        "messages that count as sent without a confirm",
        "transport/rabbitmq/publisher.py",
        "            group.decide(place, Verdict.RETURNED)  # its confirm follows\n",
        "            group.decide(place, Verdict.CONFIRMED)\n",
        f"{MESSAGES}::test_a_queue_that_is_deleted_or_unbound_is_recreated[sqlite]",
    ),
    *on_each(
        "a claim that does not look at the attempt a message names",
        "claim_delivered",
        {
            "sqlite": " and job.attempts = (delivery.value ->> 'attempt') - 1",
            "postgres": " and job.attempts = delivery.attempt - 1",
            "mysql": " and job.attempts = delivery.attempt - 1",
        },
        f"{MESSAGES}::test_redeliveries_and_ids_of_ended_jobs_run_nothing[{{}}]",
    ),
    Mutant(
        "a reconciler that does not look how many messages wait",
        "transport/rabbitmq/admin.py",
        "Depth(answer.message_count, answer.consumer_count)",
        "Depth(0, answer.consumer_count)",
        f"{MESSAGES}::test_work_that_waits_for_a_slow_worker_is_not_sent_again[mariadb]",
    ),
    Mutant(
        "a reconciler that forgets the messages in workers' hands",
        "upkeep/reconciler.py",
        "    elif patience is None and depth.consumers <= heard:\n",
        "    elif patience is None and depth.consumers >= 0:\n",
        f"{MESSAGES}::test_messages_held_by_a_frozen_worker_are_not_sent_again[sqlite]",
    ),
    *on_each(
        "a silent program that nobody counts",
        "put_back_jobs",
        {
            "sqlite": "    crashes = crashes + :crashes,\n",
            "postgres": "    crashes = job.crashes + :crashes,\n",
            "mysql": "    job.crashes = job.crashes + :crashes,\n",
        },
        f"tests/conformance/test_losing.py::{UNANSWERED}[{{}}-sync]",
    ),
    Mutant(
        "answers that do not keep a program's queue from being empty",
        f"{SQL}/common/note_empty.sql",
        "        when :has_answers = 1 and patience_us is not null then null\n",
        "",
        "tests/conformance/test_queue_observations.py::test_a_programs_queue_is_not_empty_while_answers_wait[postgres-sync]",
    ),
    Mutant(
        "a mark of SQLite that hides a job which was put back",
        f"{SQL}/sqlite/mark_sent.sql",
        "  and updated_at <= :read_at\n",
        "  and :read_at is not null\n",
        "tests/conformance/test_losing.py::test_marking_a_job_as_sent_after_it_was_put_back_is_refused[sqlite-sync]",
    ),
]
