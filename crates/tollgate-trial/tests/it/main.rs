//! Trials with real processes: many agents, outsiders that know nothing of tollgate, and every disaster that can be
//! staged without pulling the plug.

mod agents;
mod crash;
mod crew;
mod degraded;
mod false_alarms;
mod fault;
mod foreign;
mod outsiders;
mod scene;
mod strace;
