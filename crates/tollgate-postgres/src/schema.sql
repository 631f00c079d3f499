-- Format 1 of a vault in PostgreSQL. Everything is in one schema, which is the search path while this runs.
--
-- Every change of a task and every new ledger line happens under one advisory lock, which lasts until the change is
-- committed. So positions become visible in their order: a reader that has seen position N has seen all before it.

create table tollgate (format int not null, deletions bigint not null default 0);
insert into tollgate (format) values (1);

-- Versions of tasks and places in the ledger. Taken only under the lock.
create sequence position;

create table tasks (
    id bigint generated always as identity primary key,
    name text not null,
    state text not null,
    agent text not null default '',
    version bigint not null unique,
    text bytea not null,
    record json,
    claim text,
    lease_until timestamptz,
    modified_at timestamptz not null,
    changed_at timestamptz not null,
    unique (name, state, agent)
);
create index tasks_in_state on tasks (state);
create index tasks_claimed on tasks (claim) where claim is not null;

create table ledger (pos bigint primary key, step text not null, entry json not null);

-- The steps that were taken, and where they brought their tasks: the answer if the same step arrives again.
create table steps (id text primary key, name text, state text, agent text, taken_at timestamptz not null);
create index steps_taken_at on steps (taken_at);

-- The one clock that leases are measured with.
create function lease_clock() returns timestamptz language sql volatile as 'select clock_timestamp()';

create function lock_vault() returns void language sql set search_path from current as
    $$ select pg_advisory_xact_lock((1953459303::bigint << 32) | 'tasks'::regclass::oid::bigint) $$;

create function append(step_id text, entries text[]) returns void language plpgsql set search_path from current as $$
declare
    entry text;
begin
    foreach entry in array entries loop
        insert into ledger (pos, step, entry) values (nextval('position'), step_id, entry::json);
    end loop;
end $$;

-- Takes a step: `done` and where the task is now, or `conflict`.
create function apply_step(
    step_id text, task text, in_state text, in_agent text, at_version bigint, to_state text, to_agent text,
    fallback text, new_text bytea, new_record text, new_claim text, lease_us bigint, entries text[]
) returns table (outcome text, landed_name text, landed_state text, landed_agent text)
language plpgsql set search_path from current as $$
declare
    row_id bigint;
    landed text := task;
begin
    -- A lost race needs no lock to be seen.
    if not exists (select from tasks t where t.version = at_version)
        and not exists (select from steps s where s.id = step_id)
    then
        return query select 'conflict', task, in_state, in_agent;
        return;
    end if;
    perform lock_vault();
    return query select 'done', s.name, s.state, s.agent from steps s where s.id = step_id;
    if found then
        return;
    end if;
    select t.id into row_id from tasks t
        where t.version = at_version and t.name = task and t.state = in_state and t.agent = in_agent;
    if not found then
        return query select 'conflict', task, in_state, in_agent;
        return;
    end if;
    if exists (
        select from tasks t
        where t.name = task and t.state = to_state and t.agent = to_agent and t.id <> row_id
    ) then
        landed := fallback;
    end if;
    update tasks t set
        name = landed, state = to_state, agent = to_agent, text = coalesce(new_text, t.text),
        record = new_record::json, claim = new_claim,
        lease_until = lease_clock() + lease_us * interval '1 microsecond'
        where t.id = row_id;
    perform append(step_id, entries);
    insert into steps values (step_id, landed, to_state, to_agent, clock_timestamp());
    return query select 'done', landed, to_state, to_agent;
end $$;

-- Adds a task: whether it is there now because of this step.
create function add_task(step_id text, task text, new_text bytea) returns boolean
language plpgsql set search_path from current as $$
begin
    perform lock_vault();
    if exists (select from steps s where s.id = step_id) then
        return true;
    end if;
    insert into tasks (name, state, text) values (task, 'Needs_Action', new_text) on conflict do nothing;
    if not found then
        return false;
    end if;
    insert into steps values (step_id, task, 'Needs_Action', '', clock_timestamp());
    return true;
end $$;

-- Records events that belong to no step of a task, once.
create function record_events(step_id text, entries text[]) returns void
language plpgsql set search_path from current as $$
begin
    perform lock_vault();
    if not exists (select from steps s where s.id = step_id) then
        perform append(step_id, entries);
        insert into steps (id, taken_at) values (step_id, clock_timestamp());
    end if;
end $$;

-- The triggers make every change of a task count, no matter who makes it: a person with `psql` as well.
-- The lock comes first, before any row is locked, so that nobody waits for each other.
create function lock_first() returns trigger language plpgsql set search_path from current as $$
begin
    perform lock_vault();
    return null;
end $$;
create trigger lock_first before insert or update or delete or truncate on tasks
    for each statement execute function lock_first();

create function new_version() returns trigger language plpgsql set search_path from current as $$
begin
    new.version := nextval('position');
    new.changed_at := lease_clock();
    if tg_op = 'INSERT' or new.text is distinct from old.text or new.modified_at is null then
        new.modified_at := new.changed_at;
    end if;
    return new;
end $$;
create trigger new_version before insert or update on tasks for each row execute function new_version();

create function tell() returns trigger language plpgsql set search_path from current as $$
begin
    if tg_op = 'UPDATE' and (new.state, new.agent, new.text) is not distinct from (old.state, old.agent, old.text) then
        return null;
    end if;
    perform pg_notify('tollgate_' || tg_table_schema, new.state || '/' || new.name);
    if tg_op = 'UPDATE' and old.state <> new.state then
        perform pg_notify('tollgate_' || tg_table_schema, old.state || '/' || old.name);
    end if;
    return null;
end $$;
create trigger tell after insert or update on tasks for each row execute function tell();

create function count_deletion() returns trigger language plpgsql set search_path from current as $$
begin
    update tollgate set deletions = deletions + 1;
    return null;
end $$;
create trigger count_deletion after delete or truncate on tasks for each statement execute function count_deletion();
