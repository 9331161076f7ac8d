//! How long a file in an inbox stays unchanged before it is read: what its configuration says (`inbox.settle`, by default
//! `INBOX_SETTLE` of `config/inbox.rs`), and longer on a network file system.

use crate::domain::time::Millis;

/// How long a file that a scan found on a network file system stays unchanged, before it counts: the kernel of
/// another machine keeps what is written to itself for up to this long, and half a row would be bought as if it
/// were whole.
pub const NETWORK_SETTLE: Millis = Millis::from_secs(30);

/// Network file systems, as `statfs` names them: NFS, SMB (three generations), 9P, AFS, Coda, NCP, Ceph,
/// Lustre, GFS2, OCFS2 and FUSE, which may be any.
const NETWORK_TYPES: [i64; 13] = [
    0x6969,
    0x517B,
    0xFF53_4D42,
    0xFE53_4D42,
    0x0102_1997,
    0x5346_414F,
    0x7375_7245,
    0x564C,
    0x00C3_6400,
    0x0BD0_0BD0,
    0x0116_1970,
    0x7461_636F,
    0x6573_5546,
];

/// How long a file that is written in place stays unchanged before it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SettleTimes {
    /// After it was closed.
    pub(super) closed: Millis,
    /// After a scan found it.
    pub(super) found: Millis,
}

impl SettleTimes {
    /// Of an inbox that waits `settle`, on a file system that other machines do not write to.
    pub(super) fn here(settle: Millis) -> SettleTimes {
        SettleTimes { closed: settle, found: settle }
    }

    /// The same on a file system of this type.
    pub(super) fn on(file_system: i64, settle: Millis) -> SettleTimes {
        let waits = SettleTimes::here(settle);
        match NETWORK_TYPES.contains(&file_system) {
            true => SettleTimes { found: settle.max(NETWORK_SETTLE), ..waits },
            false => waits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_are_given_more_time() {
        let (nfs, cifs, ext4, tmpfs) = (0x6969, 0xFF53_4D42, 0xEF53, 0x0102_1994);
        let found = |file_system| SettleTimes::on(file_system, Millis::from_secs(2)).found;
        assert_eq!([nfs, cifs].map(found), [NETWORK_SETTLE; 2]);
        assert_eq!([ext4, tmpfs].map(found), [Millis::from_secs(2); 2]);
        assert_eq!(
            SettleTimes::on(nfs, Millis::from_secs(60)).found,
            Millis::from_secs(60),
            "who asks for more gets it"
        );
    }
}
