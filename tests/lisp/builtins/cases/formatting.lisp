(format "%s is %d" "Ada" 36) => "Ada is 36"
(format "%.2f" 3.14159) => "3.14"
(format "%5d|%-5d|%05d" 42 42 42) => "   42|42   |00042"
(format "%,d %+d" 1234567 5) => "1,234,567 +5"
(format "%,.2f" 1234.5) => "1,234.50"
(format "%x %X %o" 255 255 8) => "ff FF 10"
(format "%e" 12345.678) => "1.234568e+04"
(format "100%%") => "100%"
(format "%s %s" nil [1 :a]) => "nil [1 :a]"
(format "%2$s %1$s" "a" "b") => "b a"
(format "%.2f" 5) => "5.00"
(format "%.2f %.2f %.2f" 0.125 -0.125 2.675) => "0.13 -0.13 2.68"
(format "%.0f %.0f %.0f" 0.5 1.5 -2.5) => "1 2 -3"
(format "%.3f %,.1f" 1e22 1e15) => "10000000000000000000000.000 1,000,000,000,000,000.0"
(format "%f" ##Inf) => "inf"
(format "%s|%5s|%-5s|%.2s" "a" "b" "c" "defg") => "a|    b|c    |de"
(format "%05d" -42) => "-0042"
(format "%b" true) => "true"
(format "%d" 1.5) !! format: expects an integer for %d, got a float
(format "%d" "x") !! format: expects an integer, got a string
(format "%f" nil) !! format: expects a number, got nil
(format "%s") !! format: there are more directives than arguments
(format "%y" 1) !! format: the template has an unknown directive
(format "%999999d" 1) !! format: a width or precision above
(format 5) !! format: expects a string
