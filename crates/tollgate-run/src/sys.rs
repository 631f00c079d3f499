//! The system calls that need unsafe code. Each block says why it is sound.
