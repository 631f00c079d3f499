//! A macro for the list of commands, so that each command is one line with its arguments and its function.

/// Makes an enum of commands for clap, and a method `run` that calls the function of the parsed command.
macro_rules! commands {
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
