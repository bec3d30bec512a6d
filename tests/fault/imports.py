"""Everything a worker of the fault tests needs, imported once in the nursery."""

import aiosqlite
import asyncmy
import pika
import psycopg
import pymysql

import stagepost.client
import stagepost.config.logging
import stagepost.worker
import stagepost.worker.process_main
import tests.fault.families
import tests.fault.tasks
import tests.fault.uploads
import tests.fault.worker_main

__all__ = ["aiosqlite", "asyncmy", "pika", "psycopg", "pymysql", "stagepost", "tests"]
