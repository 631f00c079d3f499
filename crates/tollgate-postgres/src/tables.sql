-- The tables of a vault in PostgreSQL, format 6. Everything is in one schema, which stands for `@@` and is the search path here. `@lock@` is its lock.
--
-- Transactions run side by side, so that the server can flush several commits at once. A transaction takes numbers of
-- ledger lines before it commits, so lines become visible out of order. Each writer of lines holds a shared advisory lock from before its
-- first number until its commit is visible: a reader that gets the lock alone knows that every number taken so far is
-- visible or will never be used (`settle`).

create table tollgate (format int not null, deletions bigint not null default 0);
insert into tollgate (format) values (6);

create sequence versions;
create sequence lines;

create table tasks (
    id bigint generated always as identity,
    name text not null,
    state text not null,
    agent text not null default '',
    version bigint not null,
    text bytea not null,
    record json,
    claim text,
    lease_until timestamptz,
    modified_at timestamptz not null,
    changed_at timestamptz not null,
    -- The transaction of the last change.
    xact bigint not null,
    -- Its place in the queue, if it waits to be claimed. Only tollgate can read what a text asks for, so it says how urgent a task is when it
    -- writes the task. What a person writes has no urgency until a process that reads the queue gives it one.
    urgency text collate "C",
    -- The last steps that were taken, the latest first. This row says where they brought the task.
    taken text[],
    primary key (name, state, agent)
);
create index tasks_in_state on tasks (state);
create index tasks_claimed on tasks (claim) where claim is not null;
create index tasks_changed on tasks (xact);
-- The queue: the tasks that wait to be claimed, in order.
create index tasks_queue on tasks (urgency, modified_at, name collate "C", state collate "C")
    where state in ('Needs_Action', 'Approved') and urgency is not null;
create index tasks_without_urgency on tasks (id) where state in ('Needs_Action', 'Approved') and urgency is null;

create table ledger (pos bigint primary key, entry json not null);

-- New tasks and events without a task, by the ids of their steps: the answer if the same step arrives again.
create table steps (id text primary key, name text, state text, agent text, taken_at timestamptz not null);
