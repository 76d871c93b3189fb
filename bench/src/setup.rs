//! The systems by name: which crate, opened with which flush interval.

use crate::peer::Peer;
use crate::scenarios::{self, Case, Outcome};
use crate::system::{Fault, Flush, System};

/// One column of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setup {
    /// The crate of this repository, as it comes.
    #[cfg(feature = "ours")]
    Ours,
    /// The peer as it comes.
    Peer,
    /// The peer set to flush every millisecond.
    PeerOneMs,
}

impl Setup {
    pub(crate) const ALL: &[Self] = &[
        #[cfg(feature = "ours")]
        Self::Ours,
        Self::PeerOneMs,
        Self::Peer,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "ours")]
            Self::Ours => "ours",
            Self::Peer => "peer",
            Self::PeerOneMs => "peer-1ms",
        }
    }

    pub(crate) fn from_name(name: &str) -> Result<Self, Fault> {
        let found = Self::ALL.iter().find(|setup| setup.name() == name);
        found.copied().ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|setup| setup.name()).collect();
            format!("no system {name:?}; this build has {names:?}").into()
        })
    }

    /// Opens the system and runs one case of a scenario on it.
    pub(crate) async fn run(self, scenario: &str, case: &Case) -> Result<Outcome, Fault> {
        match self {
            #[cfg(feature = "ours")]
            Self::Ours => {
                let system = crate::ours::Ours::open(Flush::Default).await?;
                scenarios::run(scenario, case, system).await
            }
            Self::Peer => scenarios::run(scenario, case, Peer::open(Flush::Default).await?).await,
            Self::PeerOneMs => {
                scenarios::run(scenario, case, Peer::open(Flush::Millis(1)).await?).await
            }
        }
    }
}
