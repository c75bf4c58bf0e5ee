//! [`Group`]: the groups of options in the help.

/// A group of options in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The image and how it is opened.
    Image,
    /// Access and permissions.
    Access,
    /// When changes become durable.
    Durability,
    /// Access times and change times.
    Times,
    /// File system features.
    Features,
    /// The mount and its server.
    Mount,
    /// Accepted and ignored.
    Ignored,
}

impl Group {
    /// All groups, in the order of the help.
    pub const ALL: [Group; 7] = [
        Group::Image,
        Group::Access,
        Group::Durability,
        Group::Times,
        Group::Features,
        Group::Mount,
        Group::Ignored,
    ];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Group::Image => "The image",
            Group::Access => "Access and permissions",
            Group::Durability => "When changes become durable",
            Group::Times => "File times",
            Group::Features => "Features",
            Group::Mount => "The mount",
            Group::Ignored => "Accepted and ignored",
        }
    }
}
