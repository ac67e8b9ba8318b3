"""Objects that job plugins create for a job; they are deleted when the job is killed."""

from msgspec import Struct


class OwnedObjects(Struct, frozen=True, omit_defaults=True):
    """Names of the objects that belong to a job besides its pods."""

    services: tuple[str, ...] = ()
    config_maps: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    network_policies: tuple[str, ...] = ()

    def and_also(self, other: "OwnedObjects") -> "OwnedObjects":
        """The objects of both."""
        return OwnedObjects(
            (*self.services, *other.services),
            (*self.config_maps, *other.config_maps),
            (*self.secrets, *other.secrets),
            (*self.network_policies, *other.network_policies),
        )


NOTHING = OwnedObjects()
