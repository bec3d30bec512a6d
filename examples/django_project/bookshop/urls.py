"""The pages of the shop."""

from django.urls import path
from orders import views

urlpatterns = [
    path("buy/<int:book_id>/", views.buy),
    path("report/", views.report),
    path("report/<str:result_id>/", views.report_result),
]
