update stagepost_channel
set empty_since = case
        when :is_empty = 0 then null
        when :has_answers = 1 and patience_us is not null then null
        when looked_at < :now - :gap_us then :now
        else coalesce(empty_since, :now)
    end,
    looked_at = :now
where queue_name = :queue_name
