//! The program `minfs`.

fn main() -> std::process::ExitCode {
    minfs::program::main()
}
