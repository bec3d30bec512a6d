"""The shop's own tests, for `python manage.py test`."""

from django.core import mail
from django.test import TestCase, TransactionTestCase

from orders.models import Book, Order
from orders.tasks import send_receipt
from stagepost.contrib.django import app
from stagepost.testing import inline


class BuyTests(TestCase):
    """Every test is a transaction that Django rolls back, with its jobs."""

    def setUp(self) -> None:
        self.book = Book.objects.create(title="Walden", stock=1)

    def buy(self) -> int:
        return self.client.post(f"/buy/{self.book.pk}/", {"email": "ada@example.org"}).status_code

    def test_a_purchase_enqueues_its_receipt(self) -> None:
        self.assertEqual(self.buy(), 201)

        [job] = app.client.jobs()
        self.assertEqual((job.task, job.arguments), (send_receipt.name, {"order_id": Order.objects.get().pk}))

    def test_a_refused_purchase_enqueues_nothing(self) -> None:
        Book.objects.update(stock=0)

        self.assertEqual(self.buy(), 409)

        self.assertEqual((Order.objects.count(), app.client.jobs()), (0, []))

    def test_the_receipt_is_sent(self) -> None:
        with inline(app):
            self.buy()

        self.assertEqual([message.to for message in mail.outbox], [["ada@example.org"]])
        self.assertIsNotNone(Order.objects.get().receipt_sent_at)


class ReportTests(TransactionTestCase):
    """A report is a task of Django."""

    def test_a_report_is_asked_for_and_waits_for_a_worker(self) -> None:
        result_id = self.client.post("/report/").json()["result"]

        answer = self.client.get(f"/report/{result_id}/").json()

        self.assertEqual(answer, {"status": "READY", "orders": None})
