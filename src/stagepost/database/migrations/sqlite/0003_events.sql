-- Events: what happened to jobs. A row holds all events of one statement, because jobs end in groups of hundreds.
-- `facts` is a JSON array with an element for each event, and `number` is how many there are. `position` is the number
-- of the first event, given after the commit by the next reader. It is null until then.
create table stagepost_event (
    id integer primary key autoincrement,
    position integer,
    happened_at integer not null,
    subject text not null,
    number integer not null,
    facts text not null
);

create index stagepost_event_new on stagepost_event (id)
where position is null;

create unique index stagepost_event_position on stagepost_event (position)
where position is not null;

-- The stream of events, one row: the last number given, and the last number whose event was deleted.
create table stagepost_stream (
    id integer primary key,
    last_position integer not null,
    pruned_position integer not null
);

-- Which events of each task are recorded, as workers declare it when they start. The empty name is the default.
create table stagepost_event_level (
    task_name text primary key,
    level text not null
        check (level in ('final', 'off'))
);
