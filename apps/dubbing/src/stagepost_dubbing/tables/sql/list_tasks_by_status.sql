select id, status, error, source_language, target_language, title, source_sha256, source_video_key, output_video_key,
    options_json, revision, requeues, run_id, duration_ms, speech_db, created_at, updated_at, finished_at
from tasks
where status = :status
order by created_at desc, id desc
limit :most
