//! The password file of PostgreSQL's own programs: lines of `host:port:database:user:password`. Pure.

use crate::options::PostgresOptions;

/// The password for this connection in the text of a password file: that of the first line that fits. A field may be `*`;
/// `\:` and `\\` stand for `:` and `\`.
pub fn password_in(passfile: &str, options: &PostgresOptions) -> Option<String> {
    let host = options.hosts.first()?;
    // PostgreSQL's programs look for `localhost` if the connection is a Unix socket.
    let name = if host.name.starts_with('/') { "localhost" } else { &host.name };
    let wanted = [name, &host.port.to_string(), &options.database, &options.user];
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

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let mut options = PostgresOptions::parse("postgres://db:7/work").unwrap();
        options.user = "m:e".into();
        let file =
            "# db:7:work:m\\:e:comment\nother:*:*:*:a\ndb:8:*:*:b\ndb:7:work:m\\:e:c\\\\:d\n*:*:*:*:e\n";
        assert_eq!(password_in(file, &options).as_deref(), Some("c\\:d"));
        options.user = "you".into();
        assert_eq!(password_in(file, &options).as_deref(), Some("e"));
        assert_eq!(password_in("db:7:work\n", &options), None);
        assert_eq!(password_in("", &options), None);
        let mut socket = PostgresOptions::parse("postgres://%2Frun/work").unwrap();
        socket.user = "you".into();
        assert_eq!(password_in("localhost:5432:work:you:f", &socket).as_deref(), Some("f"));
    }
}
