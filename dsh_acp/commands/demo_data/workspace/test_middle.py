"""What `middle` promises."""

import unittest

from middle import median


class MedianTest(unittest.TestCase):
    """Odd and even counts."""

    def test_odd_count(self) -> None:
        """The value in the middle."""
        self.assertEqual(median([7, 1, 3]), 3)

    def test_even_count(self) -> None:
        """Halfway between the two in the middle."""
        self.assertEqual(median([4, 1, 3, 2]), 2.5)


if __name__ == "__main__":
    unittest.main()
