//! A macro for the list of commands, so that each command is one line with its arguments and its function.

/// Makes an enum of commands for clap, and a method `run` that calls the function of the parsed command.
///
/// With `: Here` or another word of [`RunAccess`](super::RunAccess) after its arguments, a command also says how it works inside a run.
macro_rules! commands {
    ($(#[$about:meta])* $visible:vis enum $list:ident {
        $($name:ident($args:ty): $in_run:ident => $run:expr,)*
    }) => {
        commands! {
            $(#[$about])*
            $visible enum $list {
                $($name($args) => $run,)*
            }
        }

        impl $list {
            $visible fn in_run(&self) -> RunAccess {
                match self {
                    $(Self::$name(_) => RunAccess::$in_run,)*
                }
            }
        }
    };
    ($(#[$about:meta])* $visible:vis enum $list:ident {
        $($(#[$option:meta])* $name:ident($args:ty) => $run:expr,)*
    }) => {
        $(#[$about])*
        #[derive(Debug, clap::Subcommand)]
        $visible enum $list {
            $($(#[$option])* $name($args),)*
        }

        impl $list {
            $visible fn run(
                &self,
                invocation: &crate::invocation::Invocation,
            ) -> Result<crate::answer::Answer, crate::error::CliError> {
                match self {
                    $(Self::$name(args) => $run(invocation, args),)*
                }
            }
        }
    };
}

pub(crate) use commands;
