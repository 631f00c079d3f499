//! The gate: a system call that would destroy a foreign change fails, for every process that the command starts.
//!
//! It needs no privilege, no namespace and no mount: the kernel lets a process have its own system calls supervised (seccomp
//! user notification). There is no transaction. A call is judged before it is made, so calls before it stand, and a program
//! that holds a file open is not judged again when it writes into it.

mod call;
mod closed;
mod files;
mod guarding;
mod of_git;
mod protection;
mod remembered;
mod rename;
mod tracee;
mod why_not;

pub(crate) use self::guarding::run;
pub(crate) use self::why_not::why_not;
pub(crate) use crate::sys::seccomp::{is_without_door, level_here};
