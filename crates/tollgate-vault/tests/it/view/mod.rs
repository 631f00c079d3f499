//! The folder view over a store that lives outside the library: what people do in the folders, on one machine and on two.

mod chance;
mod machine;
mod rules;
mod together;
