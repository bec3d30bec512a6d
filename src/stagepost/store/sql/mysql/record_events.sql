-- Differs: counts the events with json_length.
insert into stagepost_event (happened_at, subject, number, facts)
values (:now, 'job', json_length(:events), :events)
