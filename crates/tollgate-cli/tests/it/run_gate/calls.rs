//! Every supervised system call, made directly.

use std::fs;

use super::{ledger, payloads, run, world};
use crate::world::World;

/// Makes one system call and prints its error, or 0. Arguments: `n:NUMBER`, `s:TEXT`, `h:FLAGS` for the structure of `openat2`,
/// `r:FLAGS` for the same with the open folder as root, or `d:FOLDER` for an open folder.
const CALL: &str = r#"
    my ($call, @words) = @ARGV;
    my @open;
    my @arguments = map { my ($kind, $value) = /^(.):(.*)$/s;
        $kind eq "n" ? 0 + $value : $kind eq "h" ? pack("QQQ", $value, 0, 0) : $kind eq "r" ? pack("QQQ", $value, 0, 0x10)
        : $kind eq "d" ? do { opendir(my $folder, $value) or die "$!"; push @open, $folder; 0 + fileno($folder) }
        : $value . "\0" } @words;
    my $answer = syscall($call, @arguments);
    print $answer < 0 ? 0 + $! : 0;
"#;

const HERE: &str = "n:-100";
const TRUNCATE: i32 = libc::O_WRONLY | libc::O_TRUNC;

/// The error of one call under the gate.
fn error(world: &World, turn: &str, call: i64, arguments: &[&str]) -> i32 {
    let number = call.to_string();
    let perl = ["run", "--mode", "gate", "--turn", turn, "--", "perl", "-e", CALL, &number];
    let ran = world.tollgate(perl.iter().chain(arguments)).ends();
    ran.stdout().parse().unwrap_or_else(|_| panic!("{ran}"))
}

#[test]
fn each_call_that_would_destroy_an_unseen_change_fails() {
    let truncate = format!("n:{TRUNCATE}");
    let (how, below) = (format!("h:{TRUNCATE}"), format!("r:{TRUNCATE}"));
    let write_only = format!("n:{}", libc::O_WRONLY);
    let read_and_truncate = format!("n:{}", libc::O_RDONLY | libc::O_TRUNC);
    let create = format!("n:{}", TRUNCATE | libc::O_CREAT);
    let exchange = format!("n:{}", libc::RENAME_EXCHANGE);
    let mut calls: Vec<(&str, i64, Vec<&str>)> = vec![
        ("openat", libc::SYS_openat, vec![HERE, "s:f", &truncate]),
        ("openat, absolute", libc::SYS_openat, vec!["n:-1", "s:/proc/self/cwd/f", &truncate]),
        ("openat, create", libc::SYS_openat, vec![HERE, "s:f", &create, "n:438"]),
        ("openat, a part", libc::SYS_openat, vec![HERE, "s:./f", &write_only]),
        ("openat, for reading", libc::SYS_openat, vec![HERE, "s:f", &read_and_truncate]),
        ("openat, through a link", libc::SYS_openat, vec![HERE, "s:link", &truncate]),
        ("openat, below a folder", libc::SYS_openat, vec!["d:.", "s:f", &truncate]),
        ("openat2", libc::SYS_openat2, vec![HERE, "s:f", &how, "n:24"]),
        ("openat2, below a root", libc::SYS_openat2, vec!["d:.", "s:/f", &below, "n:24"]),
        ("truncate", libc::SYS_truncate, vec!["s:f", "n:0"]),
        ("renameat, over it", libc::SYS_renameat, vec![HERE, "s:t", HERE, "s:f"]),
        ("renameat, away", libc::SYS_renameat, vec![HERE, "s:f", HERE, "s:x"]),
        ("renameat2", libc::SYS_renameat2, vec![HERE, "s:t", HERE, "s:f", "n:0"]),
        ("renameat2, exchange", libc::SYS_renameat2, vec![HERE, "s:t", HERE, "s:f", &exchange]),
        ("unlinkat", libc::SYS_unlinkat, vec![HERE, "s:f", "n:0"]),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        ("open", libc::SYS_open, vec!["s:f", &truncate]),
        ("creat", libc::SYS_creat, vec!["s:f", "n:438"]),
        ("rename, over it", libc::SYS_rename, vec!["s:t", "s:f"]),
        ("rename, away", libc::SYS_rename, vec!["s:f", "s:x"]),
        ("unlink", libc::SYS_unlink, vec!["s:f"]),
    ]);
    for (name, call, arguments) in calls {
        let world = world();
        world.puts("t", "two\n");
        std::os::unix::fs::symlink("f", world.path("link")).unwrap();
        let turn = world.turn("blue");
        world.run(&format!("read f --turn {turn}")).is(0);
        world.puts("f", "foreign\n");
        assert_eq!(error(&world, &turn, call, &arguments), libc::ESTALE, "{name}");
        world.holds("f", "foreign\n");
        world.holds("t", "two\n");
        assert_eq!(ledger(&world, "MUTATION_CONFLICT").len(), 1, "{name}");
        world.puts("f", "one\n");
        assert_eq!(error(&world, &turn, call, &arguments), 0, "{name}");
    }
}

#[test]
fn each_call_that_would_change_a_protected_path_fails() {
    let write = format!("n:{}", libc::O_WRONLY | libc::O_CREAT);
    let x = "s:.tollgate/x";
    let mut calls: Vec<(&str, i64, Vec<&str>)> = vec![
        ("openat", libc::SYS_openat, vec![HERE, x, &write, "n:438"]),
        ("openat, a hook", libc::SYS_openat, vec![HERE, "s:.git/hooks/pre-commit", &write, "n:438"]),
        ("openat, a switch", libc::SYS_openat, vec![HERE, "s:.claude/settings.json", &write, "n:438"]),
        ("openat, through a link", libc::SYS_openat, vec![HERE, "s:link/x", &write, "n:438"]),
        ("truncate", libc::SYS_truncate, vec!["s:.tollgate/version", "n:0"]),
        ("renameat", libc::SYS_renameat, vec![HERE, "s:f", HERE, x]),
        ("renameat, the folder", libc::SYS_renameat, vec![HERE, "s:.tollgate", HERE, "s:y"]),
        ("renameat2", libc::SYS_renameat2, vec![HERE, "s:f", HERE, x, "n:0"]),
        ("unlinkat", libc::SYS_unlinkat, vec![HERE, "s:.tollgate/version", "n:0"]),
        ("unlinkat, a folder", libc::SYS_unlinkat, vec![HERE, "s:.tollgate/empty", "n:512"]),
        ("linkat", libc::SYS_linkat, vec![HERE, "s:f", HERE, x, "n:0"]),
        ("linkat, a second name", libc::SYS_linkat, vec![HERE, "s:.tollgate/version", HERE, "s:y", "n:0"]),
        ("symlinkat", libc::SYS_symlinkat, vec!["s:f", HERE, x]),
        ("symlinkat, a folder of switches", libc::SYS_symlinkat, vec!["s:prepared", HERE, "s:sub/.claude"]),
        ("mkdirat", libc::SYS_mkdirat, vec![HERE, x, "n:511"]),
        ("mknodat", libc::SYS_mknodat, vec![HERE, x, "n:4516", "n:0"]),
        ("fchmodat", libc::SYS_fchmodat, vec![HERE, "s:.tollgate/version", "n:511"]),
        ("fchmodat2", 452, vec![HERE, "s:.tollgate/version", "n:511", "n:0"]),
        ("fchownat", libc::SYS_fchownat, vec![HERE, "s:.tollgate/version", "n:0", "n:0", "n:0"]),
        ("setxattr", libc::SYS_setxattr, vec!["s:.tollgate/version", "s:user.a", "s:b", "n:1", "n:0"]),
        ("removexattr", libc::SYS_removexattr, vec!["s:.tollgate/version", "s:user.a"]),
        ("lsetxattr", libc::SYS_lsetxattr, vec!["s:.tollgate/version", "s:user.a", "s:b", "n:1", "n:0"]),
        ("lremovexattr", libc::SYS_lremovexattr, vec!["s:.tollgate/version", "s:user.a"]),
        ("setxattrat", 463, vec![HERE, "s:.tollgate/version", "n:0", "s:user.a", "n:0", "n:0"]),
        ("removexattrat", 466, vec![HERE, "s:.tollgate/version", "n:0", "s:user.a"]),
        ("file_setattr", 469, vec![HERE, "s:.tollgate/version", "n:0", "n:0", "n:0"]),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        ("open", libc::SYS_open, vec![x, &write, "n:438"]),
        ("creat", libc::SYS_creat, vec![x, "n:438"]),
        ("rename", libc::SYS_rename, vec!["s:f", x]),
        ("unlink", libc::SYS_unlink, vec!["s:.tollgate/version"]),
        ("rmdir", libc::SYS_rmdir, vec!["s:.tollgate/empty"]),
        ("link", libc::SYS_link, vec!["s:f", x]),
        ("symlink", libc::SYS_symlink, vec!["s:f", x]),
        ("mkdir", libc::SYS_mkdir, vec![x, "n:511"]),
        ("mknod", libc::SYS_mknod, vec![x, "n:4516", "n:0"]),
        ("chmod", libc::SYS_chmod, vec!["s:.tollgate/version", "n:511"]),
        ("chown", libc::SYS_chown, vec!["s:.tollgate/version", "n:0", "n:0"]),
        ("lchown", libc::SYS_lchown, vec!["s:.tollgate/version", "n:0", "n:0"]),
    ]);
    for (name, call, arguments) in calls {
        let world = world();
        world.script("git init -q . && rm -rf .git/hooks && mkdir .git/hooks").ends().is(0);
        let turn = world.turn("blue");
        for folder in [".claude", ".tollgate/empty", "sub", "prepared"] {
            fs::create_dir_all(world.path(folder)).unwrap();
        }
        world.puts("prepared/settings.json", "{}");
        std::os::unix::fs::symlink(".tollgate", world.path("link")).unwrap();
        assert_eq!(error(&world, &turn, call, &arguments), libc::EACCES, "{name}");
        assert!(
            !world.path(".tollgate/x").exists() && !world.path(".git/hooks/pre-commit").exists(),
            "{name}"
        );
        let refused = ledger(&world, "MUTATION_REFUSED");
        assert_eq!(refused.len(), 1, "{name}");
        assert_eq!(refused[0]["result"]["error_type"], "PROTECTED_PATH", "{name}");
    }
}

#[test]
fn calls_that_would_open_files_unseen_do_not_exist() {
    let world = world();
    let turn = world.turn("blue");
    for call in [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_open_by_handle_at,
    ] {
        assert_eq!(error(&world, &turn, call, &["n:8", "n:0"]), libc::ENOSYS);
    }
}

/// A program for 32 bits that empties the file `f` and then crashes. Its calls have other numbers.
#[cfg(target_arch = "x86_64")]
fn program_of_32_bits() -> Vec<u8> {
    let code: &[u8] = &[
        0xb8, 5, 0, 0, 0, // the call `open`
        0xbb, 0x67, 0x80, 0x04, 0x08, // the path
        0xb9, 1, 2, 0, 0, // O_WRONLY | O_TRUNC
        0xcd, 0x80, // makes the call
        0x0f, 0x0b, // no instruction
        b'f', 0,
    ];
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let length = 0x54 + code.len() as u32;
    let header = [
        // What it is, where it begins, where its one segment is described,
        words(&[
            0x464c_457f,
            0x0001_0101,
            0,
            0,
            0x0003_0002,
            1,
            0x0804_8054,
            0x34,
            0,
            0,
            0x0020_0034,
            0x0028_0001,
            0,
        ]),
        // and that segment: the whole file, to be executed.
        words(&[1, 0, 0x0804_8000, 0x0804_8000, length, length, 5, 0x1000]),
    ];
    [header.concat(), code.to_vec()].concat()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_program_of_another_architecture_opens_no_file() {
    use std::os::unix::fs::PermissionsExt;
    let world = world();
    let program = world.tmp().join("program");
    fs::write(&program, program_of_32_bits()).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.to_str().unwrap();
    world.script(&format!("{program}; true")).ends();
    if fs::read_to_string(world.path("f")).unwrap() == "one\n" {
        // This kernel executes no such programs.
        return;
    }
    world.puts("f", "one\n");
    run(&world, "gate", &[program]);
    world.holds("f", "one\n");
}

#[test]
fn a_path_that_cannot_be_read_is_refused() {
    let world = world();
    let turn = world.turn("blue");
    let wrong = "n:4096";
    assert_eq!(error(&world, &turn, libc::SYS_unlinkat, &[HERE, wrong, "n:0"]), libc::EACCES);
    assert_eq!(error(&world, &turn, libc::SYS_unlinkat, &[HERE, "n:0", "n:0"]), libc::EFAULT);
}

#[test]
fn to_open_a_path_or_a_folder_is_not_a_read() {
    let world = world();
    let turn = world.turn("blue");
    world.run(&format!("read f --turn {turn}")).is(0);
    world.puts("f", "foreign\n");
    let path = format!("n:{}", libc::O_PATH);
    assert_eq!(error(&world, &turn, libc::SYS_openat, &[HERE, "s:f", &path]), 0);
    let words = [
        "run",
        "--mode",
        "gate",
        "--turn",
        &turn,
        "--",
        "sh",
        "-c",
        "ls -l . f > /dev/null; echo two > t; mv t f",
    ];
    payloads(world.tollgate(words).ends());
    world.holds("f", "foreign\n");
}

#[test]
fn paths_lead_where_they_lead_for_the_program() {
    for script in [
        "cd sub && echo two > ../f",
        "ln -s f link; echo two > link",
        "exec 3< .; cd /; echo two > /proc/self/fd/3/f",
        "echo two > /proc/self/cwd/f",
        "perl -e 'open(F, \">\", \"/proc/thread-self/cwd/f\") or exit 1'",
        "mkdir -p ../x; ln -s \"$PWD/sub\" ../x/sub; echo two > ../x/sub/../f",
        "unshare -m sh -c 'mkdir -p ../view && mount --bind . ../view && cd ../view && echo two > f'",
        "unshare -m sh -c 'mount --bind . /mnt && echo two > /mnt/sub/../f'",
        "unshare -m sh -c 'mount --bind / /mnt && /usr/sbin/chroot /mnt sh -c \"echo two > $PWD/f\"'",
    ] {
        let world = world();
        fs::create_dir(world.path("sub")).unwrap();
        let turn = world.turn("blue");
        world.run(&format!("read f --turn {turn}")).is(0);
        world.puts("f", "foreign\n");
        let words = ["run", "--mode", "gate", "--turn", &turn, "--", "sh", "-c", script];
        let ran = world.tollgate(words).ends();
        let told = ran.to_string();
        assert_eq!(payloads(ran).len(), 1, "{script}: {told}");
        world.holds("f", "foreign\n");
    }
}

#[test]
fn what_is_mounted_over_the_workspace_elsewhere_is_not_the_workspace() {
    let world = world();
    let turn = world.turn("blue");
    world.puts("sub/f", "one\n");
    world.run(&format!("read sub/f --turn {turn}")).is(0);
    world.puts("sub/f", "foreign\n");
    let script = "unshare -m sh -c 'mount -t tmpfs none sub && echo two > sub/f && cat sub/f'";
    let words = ["run", "--mode", "gate", "--turn", &turn, "--", "sh", "-c", script];
    assert_eq!(world.tollgate(words).ends().is(0).stdout(), "two\n");
    world.holds("sub/f", "foreign\n");
}

#[test]
fn passed_folders_are_not_guarded() {
    let world = world();
    let turn = world.turn("blue");
    world.puts("out/f", "one\n");
    world.run(&format!("read out/f --turn {turn}")).is(0);
    world.puts("out/f", "foreign\n");
    let words =
        ["run", "--mode", "gate", "--pass", "out", "--turn", &turn, "--", "sh", "-c", "echo two > out/f"];
    world.tollgate(words).ends().is(0);
    world.holds("out/f", "two\n");
}
