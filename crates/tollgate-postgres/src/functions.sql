-- The functions of a vault in PostgreSQL, format 6.

-- The one clock that leases are measured with.
create function lease_clock() returns timestamptz language sql volatile as 'select clock_timestamp()';

-- Whether every number of a line that was taken before this call is visible, or will never be used. If the answer is worth
-- it, waits a little; writers that begin in the meantime wait, too.
create function settle(waits boolean) returns boolean language plpgsql as $$
begin
    if not waits then
        return pg_try_advisory_xact_lock(@lock@);
    end if;
    perform set_config('lock_timeout', '200ms', true);
    perform pg_advisory_xact_lock(@lock@);
    return true;
exception when lock_not_available then
    return false;
end $$;

-- The commit of this transaction waits for the standbys, although it changes nothing. Its answer says that an earlier
-- transaction was committed, and that one may have been committed only here.
create function wait_for_standbys() returns void language sql volatile as
    $$ select pg_logical_emit_message(true, 'tollgate', '') $$;

-- Takes a step: the name that the task has now, or null if somebody else was faster. That this name is taken in its new slot is an error. A
-- step is most of what this server does, so it is two statements and calls nothing that it can do itself.
create function take_step(
    step_id text, task text, in_state text, in_agent text, at_version bigint, to_name text, to_state text, to_agent text,
    fallback text, new_text bytea, new_record text, new_claim text, lease_us bigint, entries text[], new_urgency text
) returns text language plpgsql as $$
declare
    landed text;
    line text;
begin
    -- Before any row is locked, so that nobody who has it waits for somebody who waits for it. It is never null.
    if pg_advisory_xact_lock_shared(@lock@) is null then
        return null;
    end if;
    update @@.tasks t set
        name = to_name, state = to_state, agent = to_agent, text = coalesce(new_text, t.text),
        record = new_record::json, claim = new_claim,
        lease_until = @@.lease_clock() + lease_us * interval '1 microsecond', urgency = new_urgency,
        taken = step_id || t.taken[:7],
        version = nextval('@@.versions'), xact = pg_current_xact_id()::text::bigint, changed_at = @@.lease_clock(),
        modified_at = case when new_text is null or new_text = t.text then t.modified_at else @@.lease_clock() end
        where t.name = task and t.state = in_state and t.agent = in_agent and t.version = at_version;
    if found then
        landed := to_name;
        foreach line in array entries loop
            insert into @@.ledger (pos, entry) values (nextval('@@.lines'), line::json);
        end loop;
    else
        -- Perhaps this very step was faster, on a connection that broke. The update above has waited for it.
        select t.name into landed from @@.tasks t where t.name = any (array[task, fallback]) and step_id = any (t.taken) limit 1;
        if landed is not null then
            perform @@.wait_for_standbys();
        end if;
    end if;
    if landed is not null then
        line := set_config('tollgate.step', step_id, false);
    end if;
    return landed;
end $$;

-- Adds a task: whether it is there because of this step.
create function add_task(step_id text, task text, new_text bytea, new_urgency text) returns boolean language plpgsql as $$
begin
    -- The task may be elsewhere by now.
    if exists (select from @@.steps s where s.id = step_id) then
        perform @@.wait_for_standbys();
        perform set_config('tollgate.step', step_id, false);
        return true;
    end if;
    insert into @@.tasks (name, state, text, urgency, taken)
        values (task, 'Needs_Action', new_text, new_urgency, array[step_id]) on conflict do nothing;
    if found then
        insert into @@.steps values (step_id, task, 'Needs_Action', '', clock_timestamp());
    elsif exists (select from @@.steps s where s.id = step_id) then
        -- This very step was committed since the first look.
        perform @@.wait_for_standbys();
    else
        return false;
    end if;
    perform set_config('tollgate.step', step_id, false);
    return true;
end $$;

-- Records events that belong to no step of a task, once.
create function record_events(step_id text, entries text[]) returns void language plpgsql as $$
declare
    line text;
begin
    perform pg_advisory_xact_lock_shared(@lock@);
    insert into @@.steps (id, taken_at) values (step_id, clock_timestamp()) on conflict do nothing;
    if found then
        foreach line in array entries loop
            insert into @@.ledger (pos, entry) values (nextval('@@.lines'), line::json);
        end loop;
    else
        perform @@.wait_for_standbys();
    end if;
end $$;

-- The triggers make every change of a task count, no matter who makes it: a person with `psql` as well.
--
-- Connections of tollgate tell the listeners after the commit, if `tollgate.step` says that the step was taken: a notification inside
-- a transaction makes all commits of the server wait for each other. People do not have to think of that.
create function new_version() returns trigger language plpgsql as $$
begin
    if new.version <> old.version then
        -- A step has done all this.
        return new;
    end if;
    new.version := nextval('@@.versions');
    new.xact := pg_current_xact_id()::text::bigint;
    new.changed_at := @@.lease_clock();
    if tg_op = 'INSERT' or new.text is distinct from old.text then
        new.modified_at := new.changed_at;
    end if;
    if new.state not in ('Needs_Action', 'Approved')
        -- Nobody has said what the new text asks for.
        or tg_op = 'UPDATE' and new.text is distinct from old.text and new.urgency is not distinct from old.urgency
    then
        new.urgency := null;
    end if;
    if current_setting('tollgate.tells', true) is distinct from 'on' then
        perform pg_notify('tollgate_' || tg_table_schema, new.state || '/' || new.name);
    end if;
    return new;
end $$;
-- An urgency alone is no change of a task.
create trigger new_version
    before insert or update of name, state, agent, version, text, record, claim, lease_until, modified_at, changed_at, xact
    on tasks for each row execute function new_version();

create function count_deletion() returns trigger language plpgsql as $$
begin
    update @@.tollgate set deletions = deletions + 1;
    return null;
end $$;
create trigger count_deletion after delete or truncate on tasks for each statement execute function count_deletion();
