update stagepost_schedule_run
set job_id = :job_id
where schedule_name = :name
  and due_at = :due_at
