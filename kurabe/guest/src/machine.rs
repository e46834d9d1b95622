//! Boots an image under QEMU, follows it, and says how it ended.
//!
//! The command's input and output are QEMU's own, the console its standard error: no socket, no file
//! and no port of the host is taken, and the kernel kills QEMU with the thread that started it.

use std::fmt;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::console::Console;
use crate::end::{EndEvidence, GuestEnd, classify};
use crate::inside::{EXIT_PORT, IN_ORDER, MORE_MODULES, ON_CONSOLE, PORT, SHARE};
use crate::{Error, Image, program, sys};

const EMULATOR: &str = "qemu-system-x86_64";
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
const FILES_OF_HOST: &str = "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap";

/// What a guest has no use for, and its firmware and kernel would look at.
const MACHINE: &str = "q35,sata=off,smbus=off,usb=off,i8042=off,hpet=off,vmport=off,graphics=off";
/// Parts of the kernel that no file system uses, and that take a tenth of a second or more each to
/// start where the processor is emulated: keys, tracing, hibernation, counters of the allocator.
const NOT_STARTED: &str = "crypto_kdf108_init,init_encrypted,init_blk_tracer,snapshot_device_init,\
                           slab_sysfs_init";

/// Bounds on a boot until a command can run. An emulated processor beside others that work needs
/// several times the 3 s that it takes alone.
const BOOT_MAX_KVM: Duration = Duration::from_secs(20);
const BOOT_MAX_TCG: Duration = Duration::from_secs(50);
/// Bound on the boot that tells whether KVM works; it takes a second where it does.
const PROBE_MAX: Duration = Duration::from_secs(8);
/// A guest that gives no sign of life for so long hangs. It gives one every 2 s.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long a guest whose command has ended may take to end itself.
const LEAVE_MAX: Duration = Duration::from_secs(10);
/// More than a second does not pass between two looks at a guest but where this process stood still.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// What carries out the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Acceleration {
    /// This machine's processor.
    Kvm,
    Tcg,
}

impl fmt::Display for Acceleration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Acceleration::Kvm => "KVM",
            Acceleration::Tcg => "TCG",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestMachine {
    /// What carries out its instructions.
    pub acceleration: Acceleration,
    pub cpus: usize,
    /// Memory in bytes: all that it can ever take.
    pub memory_bytes: u64,
}

impl GuestMachine {
    /// Two processors, or one where there are no two, and 2 GiB.
    pub fn new(acceleration: Acceleration) -> GuestMachine {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from).min(2);
        GuestMachine { acceleration, cpus, memory_bytes: 2 << 30 }
    }
}

/// A disk under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestDisk {
    /// A file or a block device; a path through `/proc/PID/fd` leads to one without a name.
    pub path: PathBuf,
    /// Which bytes of it; all where absent.
    pub part: Option<Range<u64>>,
    /// Whether the host's page cache can be passed by; of memory it cannot.
    pub direct: bool,
    /// Whether the guest may discard.
    pub discard: bool,
    /// Whether other guests have it at the same time.
    pub shared: bool,
}

/// A guest's end of the network of several guests: datagrams, of one frame each. Nothing else of this
/// machine is in that network.
#[derive(Debug)]
pub struct Link {
    /// One end of a pair of sockets.
    pub socket: OwnedFd,
    /// The number of the guest among the others, which its hardware address ends with.
    pub number: u8,
}

/// A guest that was started. Killed when dropped.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    console: Console,
    acceleration: Acceleration,
    started: Instant,
    /// Since this sign of life nothing was heard.
    last_sign: Instant,
    silence: Patience,
    silent: bool,
    killed: bool,
}

/// A wait that counts only while this process runs: stopped (Ctrl-Z) or frozen it hears nobody.
#[derive(Debug)]
struct Patience {
    left: Duration,
    looked: Instant,
}

impl Patience {
    fn of(bound: Duration) -> Patience {
        Patience { left: bound, looked: Instant::now() }
    }

    /// To be asked again and again.
    fn is_over(&mut self) -> bool {
        let now = Instant::now();
        self.left = self.left.saturating_sub(now.duration_since(self.looked).min(LOOK_MAX));
        self.looked = now;
        self.left.is_zero()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestExit {
    pub end: GuestEnd,
    /// From its start until a command could run; absent when none could.
    pub boot: Option<Duration>,
    /// The last lines of its console.
    pub console: String,
}

/// The version of the emulator, when it is installed.
pub fn emulator_version() -> Option<String> {
    let text = program::text(&[EMULATOR, "--version"]).ok()?;
    text.lines().next().map(str::to_string)
}

impl Image {
    /// Starts a guest that loads the file systems' modules and runs kurabe with these words.
    pub fn boot(
        &self,
        machine: &GuestMachine,
        disks: &[GuestDisk],
        link: Option<Link>,
        modules: &[&str],
        words: &[&str],
    ) -> Result<Guest, Error> {
        let parameter = match modules {
            [] => String::new(),
            modules => format!("{MORE_MODULES}{}", modules.join(",")),
        };
        let mut command = self.command(machine, disks, &parameter, words)?;
        if let Some(Link { socket, number }) = &link {
            let descriptor = socket.as_raw_fd();
            let network = format!("dgram,id=link,local.type=fd,local.str={descriptor}");
            let device =
                format!("virtio-net-pci,netdev=link,mac=52:54:00:6b:00:{number:02x},romfile=");
            command.args(["-netdev", &network, "-device", &device]);
            sys::keep_open(&mut command, descriptor);
        }
        command.args(["-chardev", "stdio,id=port,signal=off"]);
        command.args(["-device", "virtio-serial-pci"]);
        command.args(["-device", &format!("virtserialport,chardev=port,name={PORT}")]);
        command.args(["-chardev", "file,id=console,path=/dev/stderr"]);
        command.args(["-serial", "chardev:console"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C is for the runner, which ends the guest.
        command.process_group(0);
        let mut child = command.spawn().map_err(Error::system(EMULATOR))?;
        let console = Console::follow(child.stderr.take().expect("it is a pipe"));
        Ok(Guest {
            child,
            last_sign: console.last_sign(),
            silence: Patience::of(SILENCE_MAX),
            console,
            acceleration: machine.acceleration,
            started: Instant::now(),
            silent: false,
            killed: false,
        })
    }

    /// Runs a shell in a guest, on this terminal.
    pub fn shell(&self, machine: &GuestMachine) -> Result<ExitStatus, Error> {
        let words = ["setsid", "-c", "-w", "sh", "-i"];
        let mut command = self.command(machine, &[], ON_CONSOLE, &words)?;
        command.args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
        command.stdin(Stdio::inherit());
        command.status().map_err(Error::system(EMULATOR))
    }

    /// Whether the image boots under KVM, within a bound: a device that is there may hang.
    pub(crate) fn boots_under_kvm(&self) -> bool {
        let machine = GuestMachine::new(Acceleration::Kvm);
        let kvm = std::fs::File::options().read(true).write(true).open("/dev/kvm");
        let Ok(mut guest) = kvm.map_err(Error::system("/dev/kvm")).and_then(|kvm| {
            drop(kvm);
            self.boot(&machine, &[], None, &[], &[])
        }) else {
            return false;
        };
        let status = guest.wait_for_end(PROBE_MAX);
        code_of(status) == Some(0)
    }

    fn command(
        &self,
        machine: &GuestMachine,
        disks: &[GuestDisk],
        parameter: &str,
        words: &[&str],
    ) -> Result<Command, Error> {
        let mut command = program::command(EMULATOR)?;
        let (accelerator, processor) = match machine.acceleration {
            Acceleration::Kvm => ("kvm", "host"),
            // Where there is "erms" the kernel copies byte by byte, which is slow to emulate.
            Acceleration::Tcg => ("tcg,thread=multi", "max,-erms"),
        };
        let mut line = String::from(
            "console=ttyS0 quiet panic=-1 oops=panic mitigations=off init_on_alloc=0 \
             cryptomgr.notests ipv6.disable=1 audit=0 rdinit=/kurabe",
        );
        // The kernel otherwise waits 40 ms for ticks of its timer, and panics where the emulator, beside
        // others that work here, has not come to make any meanwhile.
        line.push_str(" no_timer_check");
        line.push_str(&format!(" initcall_blacklist={NOT_STARTED}"));
        if let (Acceleration::Tcg, Some(khz)) = (machine.acceleration, sys::counter_khz()) {
            line.push_str(&format!(" tsc=reliable tsc_early_khz={khz}"));
        }
        line.push_str(&format!(" {parameter} -- inside {}", words.join(" ")));
        // The emulator takes its firmware from the current directory where that has some, whoever put it there.
        command
            .current_dir("/")
            .args("-nodefaults -no-user-config -display none -no-reboot -nic none".split(' '))
            .args(["-sandbox", SANDBOX])
            .args(["-M", MACHINE, "-accel", accelerator, "-cpu", processor])
            .args(["-smp", &machine.cpus.to_string()])
            .args(["-m", &format!("{}M", machine.memory_bytes >> 20)])
            .arg("-kernel")
            .arg(self.kernel_path())
            .arg("-initrd")
            .arg(self.initramfs_path())
            .args(["-append", &line])
            .args(["-device", &format!("isa-debug-exit,iobase={EXIT_PORT:#x},iosize=1")])
            .args(["-fsdev", FILES_OF_HOST])
            .args(["-device", &format!("virtio-9p-pci,fsdev=host,mount_tag={SHARE}")]);
        for (number, disk) in disks.iter().enumerate() {
            let cache = if disk.direct { "cache=none,aio=native" } else { "cache=writeback" };
            let (drive, device) = if disk.discard {
                ("discard=unmap", "discard=on")
            } else {
                ("discard=ignore", "discard=off,write-zeroes=off")
            };
            // Whoever shares it keeps the others out by himself. Parts of one file are disks of one guest.
            let share = if disk.shared { ",share-rw=on" } else { "" };
            let locking = if disk.shared || disk.part.is_some() { ",file.locking=off" } else { "" };
            let part = disk.part.as_ref().map_or(String::new(), |part| {
                format!(",offset={},size={}", part.start, part.end - part.start)
            });
            let (id, path) = (format!("disk{number}"), escaped(&disk.path));
            let drive =
                format!("if=none,id={id},format=raw{part},{cache},{drive}{locking},file={path}");
            let device = format!("virtio-blk-pci,drive={id},iothread={id},{device}{share}");
            let thread = format!("iothread,id={id}");
            command.args(["-object", &thread, "-drive", &drive, "-device", &device]);
        }
        sys::die_with_parent(&mut command);
        Ok(command)
    }
}

/// A path in an option of the emulator, in which a comma stands for itself when it is doubled.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// The code of the command of a guest that ended in order.
fn code_of(status: Option<ExitStatus>) -> Option<u8> {
    let written = u8::try_from((status?.code()? - 1) / 2).ok()?;
    written.checked_sub(IN_ORDER)
}

impl Guest {
    /// The command's input and output.
    ///
    /// Panics when they were taken already.
    pub fn take_pipes(&mut self) -> (ChildStdin, ChildStdout) {
        let input = self.child.stdin.take().expect("the input is taken once");
        (input, self.child.stdout.take().expect("the output is taken once"))
    }

    /// The emulator's process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a command can run, the boot takes too long, or `stopped` says so; whether one
    /// can.
    pub fn wait_ready(&mut self, stopped: &dyn Fn() -> bool) -> bool {
        let mut boot = Patience::of(match self.acceleration {
            Acceleration::Kvm => BOOT_MAX_KVM,
            Acceleration::Tcg => BOOT_MAX_TCG,
        });
        while self.console.ready().is_none() {
            let gone = !matches!(self.child.try_wait(), Ok(None));
            if gone || stopped() || boot.is_over() {
                return self.console.ready().is_some();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Whether its kernel has ended it, as after a panic: nobody killed the emulator, which found nothing wrong.
    pub fn has_given_up(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(status)) if status.success())
    }

    /// Whether it gave no sign of life for too long. To be asked again and again.
    pub fn is_silent(&mut self) -> bool {
        let last_sign = self.console.last_sign();
        if last_sign != self.last_sign {
            self.last_sign = last_sign;
            self.silence = Patience::of(SILENCE_MAX);
        }
        self.silence.is_over()
    }

    /// Ends it at once, as one that hangs.
    pub fn kill_silent(&mut self) {
        self.silent = true;
        self.kill();
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        // It may have ended by itself meanwhile.
        let _ = self.child.kill();
        self.killed = true;
    }

    /// Ends it at once, as a machine that loses its power; whether it is gone.
    pub fn cut_power(&mut self) -> bool {
        self.kill();
        self.wait_for_end(LEAVE_MAX).is_some()
    }

    /// Waits for its end, which comes by itself when the command has ended, and says how it was.
    /// `failed` says whether the command says of itself that it failed.
    pub fn end(mut self, failed: bool) -> GuestExit {
        drop((self.child.stdin.take(), self.child.stdout.take()));
        let ready = self.console.ready();
        if ready.is_none() && matches!(self.child.try_wait(), Ok(None)) {
            self.kill_silent();
        }
        let status = self.wait_for_end(LEAVE_MAX);
        if status.is_none() {
            self.kill_silent();
            self.wait_for_end(LEAVE_MAX);
        }
        let console = self.console.tail();
        let by_signal = status.is_some_and(|status| status.signal().is_some());
        let seen = EndEvidence {
            ready: ready.is_some(),
            silent: self.silent,
            killed: by_signal && !self.killed,
            code: code_of(status).filter(|_| !self.killed),
            failed,
        };
        let boot = ready.map(|ready| ready.duration_since(self.started));
        GuestExit { end: classify(seen, &console), boot, console }
    }

    fn wait_for_end(&mut self, most: Duration) -> Option<ExitStatus> {
        let mut patience = Patience::of(most);
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if patience.is_over() {
                return None;
            }
            // What it still says is read, so that it can end.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.wait_for_end(LEAVE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_counts_no_time_in_which_this_process_stood_still() {
        let mut patience = Patience::of(Duration::from_millis(1500));
        patience.looked -= Duration::from_secs(1000);
        assert!(!patience.is_over(), "it stood still for 1,000 s");
        patience.looked -= Duration::from_millis(600);
        assert!(patience.is_over());
    }
}
