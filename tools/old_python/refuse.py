"""What pip calls first under a Python that is too old; without this it would only say that some version is not to be found."""

import sys

sys.exit(
    "The book needs Python 3.11, 3.12, 3.13 or 3.14; this is Python %d.%d. Make the environment anew with one of them."
    % sys.version_info[:2]
)
