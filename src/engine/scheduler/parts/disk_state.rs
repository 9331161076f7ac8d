//! Whether the disk takes outputs, and how large the file was that it refused.

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct DiskState {
    is_low: bool,
    refused_bytes: Option<u64>,
}

impl DiskState {
    /// Whether the disk has too little room, or takes nothing more.
    pub fn is_low(&self) -> bool {
        self.is_low
    }

    /// The largest file that was refused since there was last room, in bytes.
    pub fn refused_bytes(&self) -> Option<u64> {
        self.refused_bytes
    }

    /// Takes in how the disk was found. True: that is new.
    pub fn set_low(&mut self, is_low: bool) -> bool {
        if !is_low {
            self.refused_bytes = None;
        }
        std::mem::replace(&mut self.is_low, is_low) != is_low
    }

    /// It refused a file of this many bytes. True: it was thought to have room.
    pub fn refuse(&mut self, bytes: u64) -> bool {
        self.refused_bytes = self.refused_bytes.max(Some(bytes));
        self.set_low(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_refused_file_is_remembered_until_there_is_room() {
        let mut disk = DiskState::default();
        assert!(disk.refuse(5), "that is new");
        assert!(!disk.refuse(9) && !disk.refuse(7));
        assert_eq!((disk.is_low(), disk.refused_bytes()), (true, Some(9)));
        assert!(disk.set_low(false));
        assert_eq!((disk.is_low(), disk.refused_bytes()), (false, None));
        assert!(!disk.set_low(false));
    }
}
