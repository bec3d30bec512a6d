"""Books and their orders."""

from django.db import models


class Book(models.Model):
    """A title, and how many copies are left."""

    title = models.CharField(max_length=200)
    stock = models.PositiveIntegerField(default=0)


class Order(models.Model):
    """One copy for one customer."""

    book = models.ForeignKey(Book, on_delete=models.PROTECT)
    email = models.EmailField()
    receipt_sent_at = models.DateTimeField(null=True)
