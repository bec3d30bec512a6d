-- Differs: counts the events with json_array_length.
insert into stagepost_event (happened_at, subject, number, facts)
values (:now, 'job', json_array_length(:events), :events)
