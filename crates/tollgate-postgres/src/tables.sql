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
    primary key (name, state, agent)
);
create index tasks_in_state on tasks (state);
create index tasks_claimed on tasks (claim) where claim is not null;
create index tasks_changed on tasks (xact);

create table ledger (pos bigint primary key, entry json not null);

-- New tasks and events without a task, by the ids of their steps: the answer if the same step arrives again. Format 3 had all steps here.
create table steps (id text primary key, name text, state text, agent text, taken_at timestamptz not null);
