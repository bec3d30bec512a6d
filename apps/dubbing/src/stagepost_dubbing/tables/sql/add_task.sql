insert into tasks (
    id, status, source_language, target_language, title, source_sha256, source_video_key, output_video_key,
    options_json, revision, requeues, run_id, created_at, updated_at
)
values (
    :id, :status, :source_language, :target_language, :title, :source_sha256, :source_video_key, :output_video_key,
    :options_json, :revision, :requeues, :run_id, now_us(), now_us()
)
