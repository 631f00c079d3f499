-- The index of the queue, which format 3 adds: the tasks that wait to be claimed, in order.
--
-- Only tollgate can read what a text asks for, so it says how urgent a task is when it writes the task. What a person or an
-- earlier tollgate writes has no urgency until a process that reads the queue gives it one.

alter table tasks add column if not exists urgency text collate "C";
create index if not exists tasks_queue on tasks (urgency, modified_at, name collate "C", state collate "C")
    where state in ('Needs_Action', 'Approved') and urgency is not null;
create index if not exists tasks_without_urgency on tasks (id)
    where state in ('Needs_Action', 'Approved') and urgency is null;
