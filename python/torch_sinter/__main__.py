import sys

from torch_sinter.cli.main import main

sys.exit(main())
