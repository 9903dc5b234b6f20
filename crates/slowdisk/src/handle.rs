//! A device in the hands of a test or a benchmark.

use std::path::Path;

use crate::cold::cold;
use crate::control::{Answer, Ask, Snapshot};
use crate::down::down;
use crate::error::{Error, Result};
use crate::options::UpOptions;
use crate::state::{Owner, State};
use crate::up::up;
use crate::warm::{Warmed, warm_metadata};

/// A device that is up. One that [`SlowDisk::up`] brought up goes down when
/// it is dropped, or, where the process ends without, when another device is
/// brought up or taken down.
#[derive(Debug)]
pub struct SlowDisk {
    state: State,
    /// Of a device that is to go down when this value is dropped.
    owner: Option<Owner>,
}

impl SlowDisk {
    /// Brings a device up; it goes down, by force, when the value is dropped.
    ///
    /// # Errors
    /// Without root, FUSE, loop devices or mkfs.ext4; if the mount point
    /// cannot be used; if the options make no sense. Nothing is left behind then.
    pub fn up(options: &UpOptions) -> Result<Self> {
        let (state, owner) = up(options)?;
        Ok(Self { state, owner: Some(owner) })
    }

    /// The device that is up at a mount point (or under that overlay); it stays up.
    ///
    /// # Errors
    /// [`Error::NotUp`].
    pub fn at(mountpoint: &Path) -> Result<Self> {
        Ok(Self { state: State::expect(mountpoint)?, owner: None })
    }

    /// Keeps it up when this value is dropped.
    pub fn leave_up(mut self) -> State {
        self.state.disown();
        self.owner = None;
        self.state.clone()
    }

    /// Takes it down.
    ///
    /// # Errors
    /// [`Error::Busy`] if it is in use and not forced; it stays up then.
    pub fn down(mut self, force: bool) -> Result<()> {
        let Some(_owner) = self.owner.take() else {
            return down(&self.state.options.mountpoint, force);
        };
        // Ours until it is down, then nobody's.
        down(&self.state.options.mountpoint, force).inspect_err(|_| self.state.disown())
    }

    /// Empties every cache of it; see [`cold`].
    ///
    /// # Errors
    /// [`Error::Busy`] if it is in use.
    pub fn cold(&self) -> Result<()> {
        cold(&self.state.options.mountpoint)
    }

    /// Brings directory entries, inodes and extents into memory; see [`warm_metadata`].
    ///
    /// # Errors
    /// If the tree cannot be walked.
    pub fn warm_metadata(&self) -> Result<Warmed> {
        warm_metadata(&self.state.options.mountpoint)
    }

    /// What it did since it came up, went cold or was reset.
    ///
    /// # Errors
    /// [`Error::DaemonDied`]; [`Error::Usage`] on a profile without a model.
    pub fn stats(&self) -> Result<Snapshot> {
        match self.state.ask(Ask::Stats)? {
            Answer::Stats(snapshot) => Ok(*snapshot),
            _ => Err(Error::Usage("the process answers out of turn".into())),
        }
    }

    /// Sets the counters to zero.
    ///
    /// # Errors
    /// As [`SlowDisk::stats`].
    pub fn reset_stats(&self) -> Result<()> {
        self.state.ask(Ask::Reset).map(drop)
    }

    /// Answers every request at once until [`SlowDisk::resume`].
    ///
    /// # Errors
    /// As [`SlowDisk::stats`].
    pub fn pause(&self) -> Result<()> {
        self.state.ask(Ask::Pause).map(drop)
    }

    /// Takes the model's time again.
    ///
    /// # Errors
    /// As [`SlowDisk::stats`].
    pub fn resume(&self) -> Result<()> {
        self.state.ask(Ask::Resume).map(drop)
    }

    /// Makes every block that was lost ([`lose`](crate::lose)) readable again.
    ///
    /// # Errors
    /// As [`SlowDisk::stats`].
    pub fn mend(&self) -> Result<()> {
        self.state.ask(Ask::Mend).map(drop)
    }

    /// The block device, if it has one (`object` has none).
    pub fn device(&self) -> Option<&Path> {
        self.state.device.as_deref()
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.state.options.mountpoint
    }

    /// Everything about it.
    pub fn state(&self) -> &State {
        &self.state
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        if self.owner.is_some()
            && let Err(error) = down(&self.state.options.mountpoint, true)
        {
            log::error!("{error}");
        }
    }
}
