-- Events: what happened to jobs. A row holds all events of one statement, because jobs end in groups of hundreds.
-- `facts` is a JSON array with an element for each event, and `number` is how many there are. `position` is the number
-- of the first event, given after the commit by the next reader. It is null until then.
create table stagepost_event (
    id bigint generated always as identity primary key,
    position bigint,
    happened_at bigint not null,
    subject varchar(16) not null,
    number integer not null,
    facts text not null
) with (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Compressing would cost more than writing them.
alter table stagepost_event alter column facts set storage external;

create index stagepost_event_new on stagepost_event (id)
where position is null;

create unique index stagepost_event_position on stagepost_event (position)
where position is not null;

-- The stream of events, one row: the last number given, and the last number whose event was deleted.
create table stagepost_stream (
    id smallint primary key,
    last_position bigint not null,
    pruned_position bigint not null
);

-- Which events of each task are recorded, as workers declare it when they start. The empty name is the default.
create table stagepost_event_level (
    task_name varchar(191) primary key,
    level varchar(8) not null
        check (level in ('final', 'off'))
);
