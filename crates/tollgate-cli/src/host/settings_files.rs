//! The settings that a program reads, to find out which of them disables our hooks or our MCP server.
//!
//! A file that is missing, or that cannot be read, says nothing.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::program_file::{read, read_json};

/// The files of settings that exist, in the order in which they were given.
pub(super) struct SettingsFiles(Vec<(PathBuf, Value)>);

impl SettingsFiles {
    /// JSON with comments, or TOML if the name ends so.
    pub(super) fn read(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let value = |path: &Path| match path.extension().is_some_and(|end| end == "toml") {
            true => {
                let table: toml::Table = read(path).ok()??.parse().ok()?;
                serde_json::to_value(table).ok()
            }
            false => read_json(path).ok().flatten(),
        };
        Self(paths.into_iter().filter_map(|path| value(&path).map(|value| (path, value))).collect())
    }

    /// By which of these keys something is disabled, in any of the files.
    pub(super) fn any(&self, keys: &[&str], disables: impl Fn(&Value) -> bool) -> Option<String> {
        let found = |key: &&str| {
            let (path, _) = self.0.iter().find(|(_, settings)| disables(at(settings, key)))?;
            Some(said(key, path))
        };
        keys.iter().find_map(found)
    }

    /// By which file something is disabled with this key. Only the first file that has the key counts.
    pub(super) fn first(&self, key: &str, disables: impl Fn(&Value) -> bool) -> Option<String> {
        let (path, settings) = self.0.iter().find(|(_, settings)| !at(settings, key).is_null())?;
        disables(at(settings, key)).then(|| said(key, path))
    }
}

/// The value of a key such as `features.hooks`.
fn at<'v>(settings: &'v Value, key: &str) -> &'v Value {
    key.split('.').fold(settings, |value, name| &value[name])
}

fn said(key: &str, path: &Path) -> String {
    format!("disabled by `{key}` in `{}`", path.display())
}

/// A switch that is on. Programs also take text and numbers for it, in an environment for example.
pub(super) fn is_on(value: &Value) -> bool {
    match value {
        Value::Bool(on) => *on,
        Value::Number(number) => number.as_i64() != Some(0),
        Value::String(text) => !["", "0", "false", "no", "off"].contains(&text.to_lowercase().as_str()),
        _ => false,
    }
}

/// A list that has one of these names, or an object that has one of them as a value.
pub(super) fn names(list: &Value, wanted: impl Fn(&str) -> bool) -> bool {
    let is_wanted = |entry: &Value| match entry {
        Value::String(name) => wanted(name),
        Value::Object(fields) => fields.values().filter_map(Value::as_str).any(&wanted),
        _ => false,
    };
    list.as_array().is_some_and(|list| list.iter().any(is_wanted))
}

/// A list of all that is allowed, without this name.
pub(super) fn leaves_out(list: &Value, name: &str) -> bool {
    list.is_array() && !names(list, |entry| entry == name)
}

/// The first variable in a `.env` file that decides what our hooks do. A program that loads such a file gives its variables to
/// its hooks, too: another name, other folders of the user, other libraries.
pub(super) fn variable_for_hooks(path: &Path) -> Option<String> {
    let reaches = |name: &str| {
        ["TOLLGATE_", "XDG_", "LD_"].iter().any(|start| name.starts_with(start))
            || name == "HOME"
            || name == "PATH"
    };
    let (name, _) = variables(path).into_iter().find(|(name, _)| reaches(name))?;
    Some(format!("changed by `{name}` in `{}`, which they get from there", path.display()))
}

/// By which of these variables in a `.env` file hooks are disabled.
pub(super) fn disabling_variable(path: &Path, names: &[&str]) -> Option<String> {
    let disables = |(name, value): &(String, String)| {
        names.contains(&name.as_str()) && is_on(&Value::String(value.clone()))
    };
    let (name, _) = variables(path).into_iter().find(disables)?;
    Some(said(&name, path))
}

/// The variables in a `.env` file, and their values.
fn variables(path: &Path) -> Vec<(String, String)> {
    let text = read(path).ok().flatten().unwrap_or_default();
    let variable = |line: &str| {
        let line = line.trim_start();
        let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once(['=', ':'])?;
        Some((name.trim().to_owned(), value.trim().trim_matches(['"', '\'']).to_owned()))
    };
    text.lines().filter_map(variable).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    #[test]
    fn comments_and_toml_are_read_and_the_first_file_decides() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).unwrap();
            folder.path().join(name)
        };
        let near = put("near.json", "{ // mine\n \"off\": false, }");
        let far = put("far.toml", "off = true\n[a]\nb = false\n");
        let broken = put("broken.json", "{ no");
        let files = SettingsFiles::read([broken, folder.path().join("missing"), near, far.clone()]);
        assert_eq!(files.first("off", is_on), None);
        assert_eq!(files.any(&["off"], is_on), Some(format!("disabled by `off` in `{}`", far.display())));
        assert_eq!(
            files.first("a.b", |value| *value == false),
            Some(format!("disabled by `a.b` in `{}`", far.display()))
        );
        assert_eq!(files.first("a.c", |_| true), None);
    }

    #[test]
    fn switches_and_lists_have_several_forms() {
        for (value, on) in [
            (json!(true), true),
            (json!("1"), true),
            (json!("true"), true),
            (json!(1), true),
            (json!(false), false),
            (json!("0"), false),
            (json!(""), false),
            (json!(null), false),
            (json!({}), false),
        ] {
            assert_eq!(is_on(&value), on, "{value}");
        }
        let is_ours = |name: &str| name == "ours";
        assert!(names(&json!(["a", "ours"]), is_ours) && names(&json!([{"serverName": "ours"}]), is_ours));
        assert!(!names(&json!(["a"]), is_ours) && !names(&json!("ours"), is_ours));
        assert!(leaves_out(&json!([]), "ours") && leaves_out(&json!(["a"]), "ours"));
        assert!(!leaves_out(&json!(["ours"]), "ours") && !leaves_out(&json!(null), "ours"));
    }

    #[test]
    fn variables_are_found_in_every_form_of_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".env");
        for (text, found) in [
            ("TOLLGATE_AGENT=x\n", true),
            ("A=1\n  export XDG_STATE_HOME = '/tmp'\n", true),
            ("LD_PRELOAD: x\n", true),
            ("# PATH=/tmp\n", false),
            ("A=PATH\nMY_PATH=x\nAPI_KEY=x\n", false),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(variable_for_hooks(&path).is_some(), found, "{text}");
        }
        for (text, found) in
            [("SAFE=1\n", true), ("export SAFE = \"true\"\n", true), ("SAFE=0\nSAFER=1\n", false)]
        {
            fs::write(&path, text).unwrap();
            assert_eq!(disabling_variable(&path, &["SAFE"]).is_some(), found, "{text}");
        }
    }
}
