"""Pages that enqueue jobs."""

from django.db import transaction
from django.db.models import F
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_POST

from orders.models import Book, Order
from orders.tasks import count_orders, send_receipt


class SoldOut(Exception):
    """Rolls the order back, and with it the job that would send its receipt."""


@require_POST
def buy(request: HttpRequest, book_id: int) -> JsonResponse:
    """Store an order and the job for its receipt: both, or neither."""
    try:
        with transaction.atomic():
            order = Order.objects.create(book_id=book_id, email=request.POST["email"])
            send_receipt.enqueue(order.pk)
            if not Book.objects.filter(id=book_id, stock__gt=0).update(stock=F("stock") - 1):
                raise SoldOut
    except SoldOut:
        return JsonResponse({"error": "sold out"}, status=409)
    return JsonResponse({"order": order.pk}, status=201)


@require_POST
async def report(_request: HttpRequest) -> JsonResponse:
    """Ask for a report, through Django's own interface."""
    result = await count_orders.aenqueue()
    return JsonResponse({"result": result.id}, status=202)


async def report_result(_request: HttpRequest, result_id: str) -> JsonResponse:
    """Say how far the report is."""
    result = await count_orders.aget_result(result_id)
    return JsonResponse({"status": result.status, "orders": result.return_value if result.is_finished else None})
