//! The file guard: a write never destroys a change that its author has not seen.
//!
//! [`gate`] has the calls that agents make, [`workspace`] opens the folder. This crate knows no vault; an
//! agent that works on a task brings its own [`fence`].
//!
//! Calls go down only: gate, guard, commit, disk. `root` is what all of them work on.

mod authors;
pub mod change;
pub mod change_list;
pub mod commit;
pub mod conflict;
pub mod content;
mod disk;
pub mod doctor;
pub mod edit;
mod every_byte;
mod explain;
pub mod fence;
mod file_state;
pub mod folder;
pub mod gate;
pub mod git_config;
mod git_rules;
pub mod guard;
mod harm;
mod heal;
pub mod history;
mod judge;
mod left_turn;
mod look;
mod lost_claim;
pub mod merge;
mod notes;
mod on_disk;
pub mod open_turn;
mod other_tree;
pub mod overlap;
pub mod own_commit;
pub mod part;
pub mod path;
mod place;
pub mod premise;
mod premises;
pub mod probe;
pub mod protected;
pub mod recovery;
pub mod refusal;
mod refused_run;
mod repository;
mod request;
mod reservation;
mod retention;
mod root;
pub mod run_folder;
mod session;
pub mod shared_turn;
mod sighting;
mod stage;
mod state_folder;
mod stripe_lock;
pub mod supervised;
mod tool_use;
pub mod turn;
mod turn_life;
mod turn_notes;
mod turn_record;
mod turn_shard;
mod unfinished;
pub mod unfinished_list;
pub mod view;
pub mod workspace;

pub use recovery::Swept;
