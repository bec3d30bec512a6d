insert into segments (task_id, idx, segment_id, start_ms, end_ms, src_text)
values (:task_id, :idx, :segment_id, :start_ms, :end_ms, :src_text)
