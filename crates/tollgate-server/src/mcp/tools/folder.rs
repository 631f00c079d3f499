//! Tools for folders: create, list, search, describe.
//!
//! None of them shows tollgate's own state, wherever it is, or follows a link out of the workspace.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use tollgate::folder::{EntryKind, FolderEntry, Listing};
use tollgate::guard::Outcome;
use tollgate::workspace::STATE_FOLDER;

use super::call::{ToolCall, done};
use super::schema::{Input, Output, PathArguments, nothing, path_only};
use super::tool::{Hints, Tool};
use crate::mcp::answer::{LARGEST, ToolAnswer};
use crate::mcp::collate;
use crate::mcp::glob::{Glob, MOST, Steps};

pub(super) static CREATE_DIRECTORY: Tool = Tool {
    name: "create_directory",
    title: "Create Directory",
    description: "Create a directory and its missing parents. Does nothing if the directory exists. Only \
        inside the allowed directories.",
    hints: Hints::ADDS,
    input: Input(path_only, &["path"]),
    output: Output::TEXT,
    run: create,
};

fn create(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: PathArguments = call.arguments(value)?;
    done(call.gate.create_folder(call.turn()?.turn(), call.path(&given.path)?))?;
    Ok(ToolAnswer::text(format!("Successfully created directory {}", given.path)))
}

fn mark(kind: EntryKind) -> &'static str {
    if kind == EntryKind::Folder { "[DIR]" } else { "[FILE]" }
}

/// Whether this is the name of a folder with tollgate's own state.
fn is_state(name: &OsStr) -> bool {
    name == STATE_FOLDER
}

fn listed(call: &ToolCall<'_>, path: &str) -> Result<Listing, ToolAnswer> {
    let mut listing = done(call.gate.workspace().list(call.readable(path)?))?;
    call.shows(listing.path.as_path())?;
    listing.entries.retain(|entry| !is_state(&entry.name));
    Ok(listing)
}

pub(super) static LIST_DIRECTORY: Tool = Tool {
    name: "list_directory",
    title: "List Directory",
    description: "List the entries of a directory, one per line, each marked [FILE] or [DIR]. Only inside \
        the allowed directories.",
    hints: Hints::Reads,
    input: Input(path_only, &["path"]),
    output: Output::TEXT,
    run: list,
};

fn list(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: PathArguments = call.arguments(value)?;
    let listing = listed(call, &given.path)?;
    let line = |entry: &FolderEntry| format!("{} {}", mark(entry.kind), entry.name.to_string_lossy());
    Ok(ToolAnswer::text(listing.entries.iter().map(line).collect::<Vec<_>>().join("\n")))
}

pub(super) static LIST_DIRECTORY_WITH_SIZES: Tool = Tool {
    name: "list_directory_with_sizes",
    title: "List Directory with Sizes",
    description: "List the entries of a directory with their sizes and a summary, sorted by name or size. \
        Only inside the allowed directories.",
    hints: Hints::Reads,
    input: Input(sizes_properties, &["path"]),
    output: Output::TEXT,
    run: list_with_sizes,
};

fn sizes_properties() -> Value {
    json!({
        "path": {"type": "string"},
        "sortBy": {
            "type": "string",
            "enum": ["name", "size"],
            "default": "name",
            "description": "Sort by name, or by size with the largest first",
        },
    })
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum SortBy {
    #[default]
    Name,
    Size,
}

#[derive(Deserialize)]
struct SizesArguments {
    path: String,
    #[serde(default, rename = "sortBy")]
    sort_by: SortBy,
}

fn list_with_sizes(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: SizesArguments = call.arguments(value)?;
    let listing = listed(call, &given.path)?;
    let size = |entry: &FolderEntry| {
        // A link out of the workspace does not even reveal a size.
        match call.gate.workspace().look_at(listing.path.as_path().join(&entry.name)) {
            Ok(Outcome::Done(metadata)) => metadata.len(),
            _ => 0,
        }
    };
    let mut rows: Vec<(String, EntryKind, u64)> = listing
        .entries
        .iter()
        .map(|entry| (entry.name.to_string_lossy().into_owned(), entry.kind, size(entry)))
        .collect();
    match given.sort_by {
        SortBy::Name => rows.sort_by_cached_key(|(name, ..)| collate::key(name)),
        SortBy::Size => rows.sort_by_key(|(_, _, size)| std::cmp::Reverse(*size)),
    }
    let folders = rows.iter().filter(|(_, kind, _)| *kind == EntryKind::Folder).count();
    let total = rows.iter().filter(|(_, kind, _)| *kind != EntryKind::Folder).map(|(.., size)| size).sum();
    let mut lines: Vec<String> = rows
        .iter()
        .map(|(name, kind, size)| {
            let size =
                if *kind == EntryKind::Folder { String::new() } else { format!("{:>10}", shown_size(*size)) };
            format!("{} {name:<30} {size}", mark(*kind))
        })
        .collect();
    lines.push(String::new());
    lines.push(format!("Total: {} files, {folders} directories", rows.len() - folders));
    lines.push(format!("Combined size: {}", shown_size(total)));
    Ok(ToolAnswer::text(lines.join("\n")))
}

#[allow(clippy::cast_precision_loss, reason = "two digits are shown")]
fn shown_size(bytes: u64) -> String {
    let units = ["KB", "MB", "GB", "TB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < units.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.2} {}", units[unit])
}

fn glob(pattern: &str) -> Result<Glob, ToolAnswer> {
    Glob::new(pattern).map_err(|error| ToolAnswer::failure(error.to_string()))
}

/// The search is given up. An incomplete answer would be wrong without showing it.
fn too_long() -> ToolAnswer {
    ToolAnswer::failure(
        "the search compares too many names with too long patterns\n\
         hint: search in a folder below, or with fewer `*` and `{}` in the patterns",
    )
}

/// The deepest folder below the one that a tree or a search begins with. The tree has two levels of JSON for each, and most
/// parsers stop at 128 levels. The way to a folder is looked up name by name, so this also limits the time for each, and the stack.
const DEEPEST: usize = 60;

/// Refuses a folder that is too deep. A tree or a search without it would be incomplete without showing it.
fn shallow(below: &Path) -> Result<(), ToolAnswer> {
    if below.components().count() <= DEEPEST {
        return Ok(());
    }
    let shown: PathBuf = below.components().take(3).collect();
    let shown = shown.display();
    Err(ToolAnswer::failure(format!(
        "there are folders more than {DEEPEST} levels down, in `{shown}`\n\
         hint: begin in a folder further down, or exclude `{shown}` with `excludePatterns`"
    )))
}

/// The number of patterns, checked.
fn few(patterns: &[String]) -> Result<(), ToolAnswer> {
    match patterns.len() {
        ..=MOST => Ok(()),
        count => {
            Err(ToolAnswer::failure(format!("`excludePatterns` has {count} patterns, the most is {MOST}")))
        }
    }
}

fn excludes_schema() -> Value {
    json!({"type": "array", "items": {"type": "string"}, "default": [], "description": "Glob patterns to exclude"})
}

pub(super) static DIRECTORY_TREE: Tool = Tool {
    name: "directory_tree",
    title: "Directory Tree",
    description: "Show everything below a directory as JSON. Each entry has `name` and `type` (file or \
        directory); directories have `children`. Only inside the allowed directories.",
    hints: Hints::Reads,
    input: Input(tree_properties, &["path"]),
    output: Output::TEXT,
    run: tree,
};

fn tree_properties() -> Value {
    json!({"path": {"type": "string"}, "excludePatterns": excludes_schema()})
}

#[derive(Deserialize)]
struct TreeArguments {
    path: String,
    #[serde(default, rename = "excludePatterns")]
    exclude: Vec<String>,
}

/// An entry of the tree.
#[derive(Serialize)]
struct TreeEntry {
    name: String,
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<Vec<TreeEntry>>,
}

fn tree(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: TreeArguments = call.arguments(value)?;
    few(&given.exclude)?;
    let mut exclude = Vec::new();
    for pattern in &given.exclude {
        exclude.push(glob(pattern)?);
        if !pattern.contains('*') {
            // A plain name excludes every entry with that name, and everything below it.
            exclude.push(glob(&format!("**/{pattern}"))?);
            exclude.push(glob(&format!("**/{pattern}/**"))?);
        }
    }
    let root = listed(call, &given.path)?.path;
    let exclude = Exclusions { globs: exclude, steps: Steps::new() };
    let mut room = LARGEST / 2;
    let tree = branches(call, root.as_path(), Path::new(""), &exclude, &mut room)?;
    if exclude.steps.are_used_up() {
        return Err(too_long());
    }
    let text = serde_json::to_string_pretty(&tree).map_err(|error| ToolAnswer::failure(error.to_string()))?;
    Ok(ToolAnswer::text(text))
}

/// What a tree or a search leaves out.
struct Exclusions {
    globs: Vec<Glob>,
    steps: Steps,
}

impl Exclusions {
    fn has(&self, path: &str) -> bool {
        self.steps.are_used_up() || self.globs.iter().any(|glob| glob.matches(path, &self.steps))
    }
}

/// What is in a folder. `room` are the bytes that the answer may still have.
fn branches(
    call: &ToolCall<'_>,
    root: &Path,
    below: &Path,
    exclude: &Exclusions,
    room: &mut usize,
) -> Result<Vec<TreeEntry>, ToolAnswer> {
    // A folder inside the tree that was deleted in the meantime or cannot be read is shown as empty.
    let listing = match done(call.gate.workspace().list(root.join(below))) {
        Err(answer) if answer.structured.is_none() && !below.as_os_str().is_empty() => return Ok(Vec::new()),
        listing => listing?,
    };
    let mut entries = Vec::new();
    for FolderEntry { name, kind } in listing.entries {
        let relative = below.join(&name);
        if is_state(&name) || exclude.has(&relative.to_string_lossy()) {
            continue;
        }
        // At least: the keys and the quotes around them take more.
        *room = room.checked_sub(name.len() + ENTRY).ok_or_else(ToolAnswer::too_large)?;
        let (r#type, children) = match kind {
            EntryKind::Folder => {
                shallow(&relative)?;
                ("directory", Some(branches(call, root, &relative, exclude, room)?))
            }
            _ => ("file", None),
        };
        entries.push(TreeEntry { name: name.to_string_lossy().into_owned(), r#type, children });
    }
    Ok(entries)
}

/// What an entry of a tree takes in the answer, without its name and the spaces in front of it.
const ENTRY: usize = r#"{"name":"","type":"file"}"#.len();

pub(super) static SEARCH_FILES: Tool = Tool {
    name: "search_files",
    title: "Search Files",
    description: "Find files and directories below a directory with a glob pattern on their relative path: \
        `*.rs` matches in that directory, `**/*.rs` also below it. Returns full paths. Only inside the allowed \
        directories.",
    hints: Hints::Reads,
    input: Input(search_properties, &["path", "pattern"]),
    output: Output::TEXT,
    run: search,
};

fn search_properties() -> Value {
    json!({
        "path": {"type": "string"},
        "pattern": {"type": "string"},
        "excludePatterns": excludes_schema(),
    })
}

#[derive(Deserialize)]
struct SearchArguments {
    path: String,
    pattern: String,
    #[serde(default, rename = "excludePatterns")]
    exclude: Vec<String>,
}

fn search(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: SearchArguments = call.arguments(value)?;
    few(&given.exclude)?;
    let pattern = glob(&given.pattern)?;
    let globs = given.exclude.iter().map(|pattern| glob(pattern)).collect::<Result<Vec<_>, _>>()?;
    let exclude = Exclusions { globs, steps: Steps::new() };
    let root = listed(call, &given.path)?.path;
    let mut found = FoundPaths { paths: Vec::new(), room: LARGEST / 2 };
    search_below(call, root.as_path(), Path::new(""), &pattern, &exclude, &mut found)?;
    if exclude.steps.are_used_up() {
        return Err(too_long());
    }
    if found.paths.is_empty() {
        return Ok(ToolAnswer::text("No matches found"));
    }
    Ok(ToolAnswer::text(found.paths.join("\n")))
}

/// What a search has found, and the bytes that the answer may still have.
struct FoundPaths {
    paths: Vec<String>,
    room: usize,
}

fn search_below(
    call: &ToolCall<'_>,
    root: &Path,
    below: &Path,
    pattern: &Glob,
    exclude: &Exclusions,
    found: &mut FoundPaths,
) -> Result<(), ToolAnswer> {
    let workspace = call.gate.workspace();
    // A folder that cannot be listed is skipped.
    let Ok(Outcome::Done(listing)) = workspace.list(root.join(below)) else { return Ok(()) };
    for FolderEntry { name, kind } in listing.entries {
        let relative = below.join(&name);
        let text = relative.to_string_lossy();
        if is_state(&name) || exclude.has(&text) {
            continue;
        }
        let full: PathBuf = root.join(&relative);
        let shown = || kind != EntryKind::Link || matches!(workspace.look_at(&full), Ok(Outcome::Done(_)));
        if pattern.matches(&text, &exclude.steps) && shown() {
            let path = full.to_string_lossy().into_owned();
            found.room = found.room.checked_sub(path.len() + 1).ok_or_else(ToolAnswer::too_large)?;
            found.paths.push(path);
        }
        if kind == EntryKind::Folder {
            shallow(&relative)?;
            search_below(call, root, &relative, pattern, exclude, found)?;
        }
    }
    Ok(())
}

pub(super) static GET_FILE_INFO: Tool = Tool {
    name: "get_file_info",
    title: "Get File Info",
    description: "Get the size, times, permissions and type of a file or directory, without reading its \
        content. Only inside the allowed directories.",
    hints: Hints::Reads,
    input: Input(path_only, &["path"]),
    output: Output::TEXT,
    run: info,
};

fn info(call: &ToolCall<'_>, value: Value) -> Result<ToolAnswer, ToolAnswer> {
    let given: PathArguments = call.arguments(value)?;
    let metadata = done(call.gate.workspace().look_at(call.readable(&given.path)?))?;
    let time = |time: std::io::Result<std::time::SystemTime>| match time.ok().map(Timestamp::try_from) {
        Some(Ok(time)) => format!("{time:.3}"),
        _ => "unknown".to_owned(),
    };
    Ok(ToolAnswer::text(format!(
        "size: {}\ncreated: {}\nmodified: {}\naccessed: {}\nisDirectory: {}\nisFile: {}\npermissions: {:03o}",
        metadata.len(),
        time(metadata.created()),
        time(metadata.modified()),
        time(metadata.accessed()),
        metadata.is_dir(),
        metadata.is_file(),
        metadata.mode() & 0o777,
    )))
}

pub(super) static LIST_ALLOWED_DIRECTORIES: Tool = Tool {
    name: "list_allowed_directories",
    title: "List Allowed Directories",
    description: "List the directories that this server gives access to. Everything below them is allowed, \
        too.",
    hints: Hints::Reads,
    input: Input(nothing, &[]),
    output: Output::TEXT,
    run: allowed,
};

fn allowed(call: &ToolCall<'_>, _: Value) -> Result<ToolAnswer, ToolAnswer> {
    Ok(ToolAnswer::text(format!("Allowed directories:\n{}", call.gate.workspace().path().display())))
}
