//! The password file of PostgreSQL's own programs: lines of `host:port:database:user:password`. Pure.

use crate::options::{PostgresHost, PostgresOptions};

/// Gives each host its password from the text of a password file.
pub fn read_passfile(passfile: &str, options: &mut PostgresOptions) {
    let (database, user) = (&options.database, &options.user);
    for host in &mut options.hosts {
        host.password = password_in(passfile, host, database, user);
    }
}

/// The password for this host in the text of a password file: that of the first line that fits. A field may be `*`;
/// `\:` and `\\` stand for `:` and `\`.
fn password_in(passfile: &str, host: &PostgresHost, database: &str, user: &str) -> Option<String> {
    // PostgreSQL's programs look for `localhost` if the connection is a Unix socket.
    let name = if host.name.starts_with('/') { "localhost" } else { &host.name };
    let wanted = [name, &host.port.to_string(), database, user];
    passfile.lines().filter(|line| !line.starts_with('#')).map(fields).find_map(|mut fields| {
        let fits = |(field, wanted): (&String, &&str)| field == "*" || field == wanted;
        (fields.len() == 5 && fields.iter().zip(&wanted).all(fits)).then(|| fields.remove(4))
    })
}

fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut field, mut chars) = (Vec::new(), String::new(), line.chars());
    while let Some(char) = chars.next() {
        match char {
            ':' if fields.len() < 4 => fields.push(std::mem::take(&mut field)),
            '\\' => field.extend(chars.next()),
            _ => field.push(char),
        }
    }
    fields.push(field);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The passwords of the hosts at this address, for this user.
    fn passwords(passfile: &str, url: &str, user: &str) -> Vec<Option<String>> {
        let mut options = PostgresOptions::parse(url).unwrap();
        options.user = user.to_owned();
        read_passfile(passfile, &mut options);
        options.hosts.into_iter().map(|host| host.password).collect()
    }

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let password = |file, user| passwords(file, "postgres://db:7/work", user).remove(0);
        let file =
            "# db:7:work:m\\:e:comment\nother:*:*:*:a\ndb:8:*:*:b\ndb:7:work:m\\:e:c\\\\:d\n*:*:*:*:e\n";
        assert_eq!(password(file, "m:e").as_deref(), Some("c\\:d"));
        assert_eq!(password(file, "you").as_deref(), Some("e"));
        assert_eq!(password("db:7:work\n", "you"), None);
        assert_eq!(password("", "you"), None);
        let socket = passwords("localhost:5432:work:you:f", "postgres://%2Frun/work", "you");
        assert_eq!(socket, [Some("f".to_owned())]);
    }

    #[test]
    fn each_host_has_its_own_password() {
        let file = "db1:*:*:*:one\ndb2:*:*:*:two\n";
        let found = passwords(file, "postgres://db1,db2,db3/work", "me");
        assert_eq!(found, [Some("one".to_owned()), Some("two".to_owned()), None]);
    }
}
