//! Registering the MCP server with an agent program: adds one entry to its configuration, and removes it again.
//!
//! An existing entry named `tollgate` that starts tollgate is kept, because a person may have changed it. If it starts
//! another program, nothing is changed.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tollgate::error::Fault;

use super::jsonc::{self, JsonStep};
use super::program_file::{self, damaged, pretty, read_json, remove, restore, write};
use super::setup::SetupChange;
use crate::replace::FileAccess;

/// The name of our entry.
pub(super) const NAME: &str = "tollgate";

/// In the instructions for a person: the path of the workspace, in JSON.
pub(super) const WORKSPACE: &str = "WORKSPACE";

/// The place in a program's configuration for MCP servers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Registry {
    /// The files that the program reads, relative to the workspace. A new file gets the first name.
    names: &'static [&'static str],
    form: RegistryForm,
    /// What a person has to do next, or instead. [`WORKSPACE`] stands for the path of the workspace.
    then: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq)]
enum RegistryForm {
    /// JSON: an object of servers under this key, our entry, and the content of a new file.
    Json { key: &'static str, entry: Value, base: Value },
    /// TOML: the lines of the table `[mcp_servers.NAME]`.
    Toml(String),
    /// A JSON file in the user's home, which tollgate does not change.
    ByHand,
}

/// A registered server.
#[derive(Debug)]
pub(crate) struct Registered {
    /// The configuration file, relative to the workspace or to the user's home.
    pub(crate) file: PathBuf,
    /// The program that it starts, and its arguments.
    pub(crate) command: Vec<String>,
    /// The entry is switched off.
    pub(crate) disabled: bool,
}

/// The arguments that start the server. They name no folder: the program starts servers in its own folder, and tollgate finds
/// the workspace from there.
fn words(host: &str) -> [&str; 3] {
    ["mcp", "--agent", host]
}

impl Registry {
    /// `mcpServers` in a JSON file, the most common form.
    pub(super) fn servers(names: &'static [&'static str], host: &str) -> Self {
        let entry = json!({"command": NAME, "args": words(host)});
        Self { names, form: RegistryForm::Json { key: "mcpServers", entry, base: json!({}) }, then: None }
    }

    /// A JSON file with another form.
    pub(super) fn json(
        names: &'static [&'static str],
        key: &'static str,
        base: Value,
        entry: impl Fn(Vec<&str>) -> Value,
        host: &str,
    ) -> Self {
        let entry = entry([&[NAME], &words(host)[..]].concat());
        Self { names, form: RegistryForm::Json { key, entry, base }, then: None }
    }

    /// A table in a TOML file.
    pub(super) fn tables(names: &'static [&'static str], host: &str) -> Self {
        let args = words(host).map(|word| format!("{word:?}")).join(", ");
        let lines = format!("[mcp_servers.{NAME}]\ncommand = \"{NAME}\"\nargs = [{args}]\n");
        Self { names, form: RegistryForm::Toml(lines), then: None }
    }

    /// A file in the user's home, with instructions for the user.
    pub(super) fn by_hand(names: &'static [&'static str], how: &'static str) -> Self {
        Self { names, form: RegistryForm::ByHand, then: Some(how) }
    }

    pub(super) fn then(self, then: &'static str) -> Self {
        Self { then: Some(then), ..self }
    }

    /// What a person has to do next, or instead.
    pub(crate) fn next_step(&self, root: &Path) -> Option<String> {
        let path = Value::from(root.to_string_lossy()).to_string();
        self.then.map(|then| then.replace(WORKSPACE, &path))
    }

    /// The configuration file, relative to the workspace: the one with our entry, else one that exists, else a new one.
    pub(crate) fn file(&self, root: &Path) -> Option<PathBuf> {
        let has_ours = |name: &&&str| matches!(self.found(&root.join(name)), Ok(Some(_)));
        let exists = |name: &&&str| root.join(name).exists();
        let mut names = self.names.iter();
        let found =
            names.clone().find(has_ours).or_else(|| names.clone().find(exists)).or_else(|| names.next());
        found.filter(|_| self.form != RegistryForm::ByHand).map(PathBuf::from)
    }

    /// Whether the server is registered, also with changed arguments.
    pub(crate) fn is_there(&self, root: &Path) -> bool {
        matches!(self.registered(root, None), Ok(Some(_)))
    }

    /// How the server is registered, in the workspace or in the user's home.
    pub(crate) fn registered(&self, root: &Path, home: Option<&Path>) -> Result<Option<Registered>, Fault> {
        let place = match self.form {
            RegistryForm::ByHand => home.zip(self.names.first().map(PathBuf::from)),
            _ => self.file(root).map(|file| (root, file)),
        };
        let Some((folder, file)) = place else { return Ok(None) };
        let Some(entry) = self.found(&folder.join(&file))? else { return Ok(None) };
        let texts = |value: &Value| -> Vec<String> {
            let list = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
            list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let command = [texts(&entry["command"]), texts(&entry["args"])].concat();
        let disabled = entry["enabled"] == false || entry["disabled"] == true;
        Ok(Some(Registered { file, command, disabled }))
    }

    /// Our entry, if there is one.
    fn found(&self, path: &Path) -> Result<Option<Value>, Fault> {
        let entry = match &self.form {
            RegistryForm::Json { .. } | RegistryForm::ByHand => {
                let key = self.key();
                let Some(config) = read_json(path)? else { return Ok(None) };
                let unusable = || damaged(path, &format!("`{key}` should be an object"));
                config.as_object().ok_or_else(|| damaged(path, "it should be an object"))?;
                match config.get(key) {
                    None => return Ok(None),
                    Some(servers) => servers.as_object().ok_or_else(unusable)?.get(NAME).cloned(),
                }
            }
            RegistryForm::Toml(_) => {
                let config = read_toml(path, &read(path)?)?;
                let entry = config.get("mcp_servers").and_then(|servers| servers.get(NAME));
                entry.and_then(|entry| serde_json::to_value(entry).ok())
            }
        };
        match entry {
            Some(entry) if !starts_us(&entry) => Err(damaged(
                path,
                &format!("it already has a different server named `{NAME}`; rename it first"),
            )),
            entry => Ok(entry),
        }
    }

    fn key(&self) -> &'static str {
        match &self.form {
            RegistryForm::Json { key, .. } => key,
            _ => "mcpServers",
        }
    }

    /// The file with our entry, as [`install`](Self::install) writes it. `None` if our entry is there.
    fn with_ours(&self, path: &Path) -> Result<Option<String>, Fault> {
        if self.found(path)?.is_some() {
            return Ok(None);
        }
        let text = match &self.form {
            RegistryForm::Json { key, entry, base } => match program_file::read(path)? {
                None => {
                    let mut config = base.clone();
                    config[key][NAME] = entry.clone();
                    Some(pretty(&config))
                }
                Some(text) if read_json(path)?.is_some_and(|config| config.get(key).is_some()) => {
                    jsonc::with(&text, &[JsonStep::Key(key)], Some(NAME), entry)
                }
                Some(text) => jsonc::with(&text, &[], Some(key), &json!({NAME: entry})),
            },
            RegistryForm::Toml(lines) => {
                let text = read(path)?;
                // An empty line, except after a last line without its newline: so that removing restores both.
                let gap = if text.is_empty() { "" } else { "\n" };
                Some(only_ours_differs(path, &text, format!("{text}{gap}{lines}"))?)
            }
            RegistryForm::ByHand => return Ok(None),
        };
        text.map(Some).ok_or_else(|| damaged(path, "it should be an object"))
    }

    /// The file without our entry, which is there.
    fn without_ours(&self, path: &Path) -> Result<String, Fault> {
        match &self.form {
            RegistryForm::Json { key, .. } => {
                let text = program_file::read(path)?.unwrap_or_default();
                let without = jsonc::without(&text, &[JsonStep::Key(key), JsonStep::Key(NAME)]);
                without
                    .ok_or_else(|| damaged(path, "our entry cannot be removed from it; remove it yourself"))
            }
            RegistryForm::Toml(_) => {
                let text = read(path)?;
                let without = without_table(&text);
                only_ours_differs(path, &text, without)
            }
            RegistryForm::ByHand => Ok(String::new()),
        }
    }

    /// A fault if the server cannot be registered. Changes nothing.
    pub(crate) fn can_install(&self, root: &Path) -> Result<(), Fault> {
        self.file(root).map_or(Ok(()), |file| self.with_ours(&root.join(file)).map(drop))
    }

    /// Registers the server.
    pub(crate) fn install(&self, root: &Path) -> Result<SetupChange, Fault> {
        let Some(file) = self.file(root) else { return Ok(SetupChange::ByHand) };
        let path = root.join(file);
        match self.with_ours(&path)? {
            Some(text) => {
                write(&path, &text, FileAccess::Normal)?;
                Ok(SetupChange::Written)
            }
            None => Ok(SetupChange::Kept),
        }
    }

    /// A fault if the server cannot be removed. Changes nothing.
    pub(crate) fn can_uninstall(&self, root: &Path) -> Result<(), Fault> {
        let Some(path) = self.file(root).map(|file| root.join(file)) else { return Ok(()) };
        if self.found(&path)?.is_some() { self.without_ours(&path).map(drop) } else { Ok(()) }
    }

    /// Removes the server. All other entries stay.
    pub(crate) fn uninstall(&self, root: &Path) -> Result<SetupChange, Fault> {
        let Some(file) = self.file(root) else { return Ok(SetupChange::ByHand) };
        let path = root.join(file);
        if self.found(&path)?.is_none() {
            return Ok(SetupChange::NothingToRemove);
        }
        let without = self.without_ours(&path)?;
        match &self.form {
            RegistryForm::Json { base, .. } => restore(root, &path, &without, base)?,
            RegistryForm::Toml(_) if without.trim().is_empty() => remove(root, &path)?,
            _ => write(&path, &without, FileAccess::Normal)?,
        }
        Ok(SetupChange::Removed)
    }
}

/// Whether an entry starts tollgate, with any path and any arguments.
fn starts_us(entry: &Value) -> bool {
    let command = entry.get("command").map(|command| command.get(0).unwrap_or(command));
    let program = command.and_then(Value::as_str).and_then(|command| Path::new(command).file_name());
    program.is_some_and(|program| program == NAME)
}

fn read(path: &Path) -> Result<String, Fault> {
    Ok(program_file::read(path)?.unwrap_or_default())
}

fn read_toml(path: &Path, text: &str) -> Result<toml::Table, Fault> {
    text.parse().map_err(|error: toml::de::Error| damaged(path, error.message()))
}

/// A TOML file that was edited as text, so that comments stay. A fault unless only our table differs.
fn only_ours_differs(path: &Path, before: &str, after: String) -> Result<String, Fault> {
    let parts = |text: &str| -> Result<(toml::Table, bool), Fault> {
        let mut config = read_toml(path, text)?;
        let servers = config.get_mut("mcp_servers").and_then(toml::Value::as_table_mut);
        let ours = servers.is_some_and(|servers| servers.remove(NAME).is_some());
        config.retain(|key, value| {
            key != "mcp_servers" || value.as_table().is_none_or(|table| !table.is_empty())
        });
        Ok((config, ours))
    };
    match (parts(before), parts(&after)) {
        (Ok((others, was)), Ok((still, is))) if others == still && was != is => Ok(after),
        _ => Err(damaged(path, "`mcp_servers` has an unusual form; edit the file yourself")),
    }
}

/// The text without our table, its subtables, and the empty line or the newline that was added before it.
/// `toml_edit` would add a newline to a last line that had none.
fn without_table(text: &str) -> String {
    let (ours, below) = (format!("[mcp_servers.{NAME}]"), format!("[mcp_servers.{NAME}."));
    let mut kept: Vec<&str> = Vec::new();
    let mut inside = false;
    for line in text.split_inclusive('\n') {
        let header = line.trim_start();
        if header.starts_with('[') {
            let was_inside = inside;
            inside = header.starts_with(&ours) || header.starts_with(&below);
            if inside && !was_inside && kept.last().is_some_and(|line| line.trim().is_empty()) {
                kept.pop();
            }
        }
        if !inside {
            kept.push(line);
        }
    }
    let kept = kept.concat();
    // At the end of the file and not after an empty line: the last line before it had no newline.
    let is_at_the_end =
        inside && !text.contains(&format!("\n\n{ours}")) && !text.contains(&format!("\n\r\n{ours}"));
    match kept.strip_suffix('\n') {
        Some(without) if is_at_the_end => without.to_owned(),
        _ => kept,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::host;

    fn registries() -> impl Iterator<Item = (&'static str, Registry)> {
        let all = host::ALL.into_iter().map(|host| (host.name(), host.mcp()));
        all.filter(|(_, registry)| registry.form != RegistryForm::ByHand)
    }

    #[test]
    fn a_second_registration_changes_nothing_and_removal_leaves_nothing() {
        for (host, registry) in registries() {
            let root = tempfile::tempdir().unwrap();
            assert_eq!(registry.uninstall(root.path()).unwrap(), SetupChange::NothingToRemove);
            assert_eq!(registry.install(root.path()).unwrap(), SetupChange::Written);
            assert!(registry.is_there(root.path()), "{host}");
            assert_eq!(registry.install(root.path()).unwrap(), SetupChange::Kept);
            assert_eq!(registry.uninstall(root.path()).unwrap(), SetupChange::Removed);
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0, "{host}");
        }
    }

    #[test]
    fn other_entries_stay_unchanged() {
        for (host, registry) in registries() {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join(registry.names[0]);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let texts = match &registry.form {
                RegistryForm::Json { key, .. } => {
                    let foreign = json!({"z": 1, *key: {"files": {"command": "other"}}, "a": {"b": []}});
                    let empty = format!("{{\"{key}\": {{}}}}");
                    let commented = format!("{{\n\t// mine\n\t\"{key}\": {{ }}, // here\n}}");
                    vec![
                        pretty(&foreign),
                        pretty(&json!({"z": 1})),
                        empty,
                        commented,
                        "{}".into(),
                        "{\n}\n".into(),
                    ]
                }
                _ => [
                    "# mine\nmodel = \"x\" # here\n",
                    "[mcp_servers.files]\ncommand = \"other\"\n\n[z]\ny = 1\n",
                    "[mcp_servers]\nfiles = {command = \"other\"}\n",
                    "a = 1 # no newline",
                ]
                .map(str::to_owned)
                .into(),
            };
            for text in texts {
                fs::write(&path, &text).unwrap();
                assert_eq!(registry.install(root.path()).unwrap(), SetupChange::Written, "{host}");
                let with = fs::read_to_string(&path).unwrap();
                assert!(with.contains("tollgate") && with.len() > text.len(), "{host}: {with}");
                assert_eq!(registry.uninstall(root.path()).unwrap(), SetupChange::Removed, "{host}");
                assert_eq!(fs::read_to_string(&path).unwrap(), text, "{host}");
            }
        }
    }

    #[test]
    fn an_entry_that_a_person_changed_is_kept_and_removed_whole() {
        let root = tempfile::tempdir().unwrap();
        let registry = Registry::tables(&["c.toml"], "x");
        let text = "a = 1\n\n[mcp_servers.tollgate]\ncommand = \"/opt/tollgate\"\nargs = [\n  \"mcp\",\n]\n\
                    [mcp_servers.tollgate.env]\nX = \"1\"\n[z]\ny = 2\n";
        fs::write(root.path().join("c.toml"), text).unwrap();
        assert_eq!(registry.install(root.path()).unwrap(), SetupChange::Kept);
        assert_eq!(registry.uninstall(root.path()).unwrap(), SetupChange::Removed);
        assert_eq!(fs::read_to_string(root.path().join("c.toml")).unwrap(), "a = 1\n[z]\ny = 2\n");
    }

    #[test]
    fn a_file_that_cannot_be_merged_stays_unchanged() {
        let root = tempfile::tempdir().unwrap();
        for (host, registry) in registries() {
            let path = root.path().join(registry.names[0]);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let texts: Vec<String> = match &registry.form {
                RegistryForm::Json { key, .. } => vec![
                    "{ no json }".into(),
                    "[]".into(),
                    json!({*key: []}).to_string(),
                    json!({*key: {"tollgate": {"command": "other"}}}).to_string(),
                    json!({*key: {"tollgate": {"url": "http://x"}}}).to_string(),
                ],
                _ => vec![
                    "not toml".into(),
                    "mcp_servers = {}\n".into(),
                    "[mcp_servers.tollgate]\nurl = \"http://x\"\n".into(),
                ],
            };
            for text in texts {
                fs::write(&path, &text).unwrap();
                assert!(registry.install(root.path()).is_err(), "{host}: {text}");
                assert_eq!(fs::read_to_string(&path).unwrap(), text);
            }
        }
        // If the entry cannot be removed by lines, a person has to remove it.
        let (path, text) =
            (root.path().join("c.toml"), "[mcp_servers]\ntollgate = {command = \"tollgate\"}\n");
        fs::write(&path, text).unwrap();
        assert!(Registry::tables(&["c.toml"], "x").uninstall(root.path()).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
