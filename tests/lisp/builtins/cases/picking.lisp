(count [1 2]) => 2
(count nil) => 0
(count "añ😀") => 3
(count {:a 1}) => 1
(count #{1 2}) => 2
(count 42) !! count: expects a collection or string, got an integer
(empty? nil) => true
(empty? "") => true
(empty? #{}) => true
(empty? [nil]) => false
(empty? 5) !! empty?: expects a collection or string
(not-empty []) => nil
(not-empty "") => nil
(not-empty {:a 1}) => {:a 1}
(not-empty 5) !! expects a collection
(seq []) => nil
(seq "ab") => ["a" "b"]
(seq {:b 1 :a 2}) => [[:a 2] [:b 1]]
(seq nil) => nil
(seq 1) !! seq: expects a collection
(first [1 2]) => 1
(first []) => nil
(first nil) => nil
(first "ab") => "a"
(first {:b 1 :a 2}) => [:a 2]
(first #{3 1}) => 1
(first 1) !! first: expects a collection, got an integer
(second [1 2]) => 2
(second [1]) => nil
(second nil) => nil
(second 1) !! second: expects a collection
(last [1 2]) => 2
(last "ab") => "b"
(last nil) => nil
(last 1) !! last: expects a collection
(ffirst [[1 2]]) => 1
(ffirst []) => nil
(ffirst {:a 1}) => :a
(ffirst [1]) !! first: expects a collection
(nth [10 20] 1) => 20
(nth [10] 5) => nil
(nth [10] -1) => nil
(nth [10] 5 :d) => :d
(nth "abc" 1) => "b"
(nth nil 0) => nil
(nth [1] "0") !! nth: expects an integer, got a string
(nth 5 0) !! nth: expects a collection
(rest [1 2 3]) => [2 3]
(rest []) => []
(rest "abc") => ["b" "c"]
(rest 1) !! rest: expects a collection
(next [1 2]) => [2]
(next [1]) => nil
(next nil) => nil
(next 1) !! next: expects a collection
(butlast [1 2 3]) => [1 2]
(butlast [1]) => nil
(butlast nil) => nil
(butlast 1) !! butlast: expects a collection
(take 2 [1 2 3]) => [1 2]
(take 9 [1]) => [1]
(take -1 [1]) => []
(take 0 [1]) => []
(take 1 {:b 1 :a 2}) => [[:a 2]]
(take [1 2] 2) !! take: expects a number of items, got a vector
(take 2 5) !! take: expects a collection
(drop 1 [1 2]) => [2]
(drop 9 [1]) => []
(drop -1 [1]) => [1]
(drop nil [1]) !! drop: expects a number of items, got nil
(take-last 2 [1 2 3]) => [2 3]
(take-last 9 [1]) => [1]
(take-last 0 [1]) => []
(take-last 1 5) !! take-last: expects a collection
(drop-last [1 2]) => [1]
(drop-last 2 [1 2 3]) => [1]
(drop-last 9 [1]) => []
(drop-last 2 5) !! drop-last: expects a collection
(nthrest [1 2 3] 2) => [3]
(nthrest [1] 5) => []
(nthrest 1 [1]) !! nthrest: expects a number of items
(take-nth 2 [1 2 3]) => [1 3]
(take-nth 5 [1 2]) => [1]
(take-nth 0 [1]) !! take-nth: the number must be positive
(take-while even? [2 4 5 6]) => [2 4]
(take-while :a [{:a 1} {:a nil}]) => [{:a 1}]
(take-while even? nil) => []
(take-while [true] [1]) !! not callable
(drop-while even? [2 4 5 6]) => [5 6]
(drop-while even? [2]) => []
(drop-while #{1} [1 1 2]) => [2]
(drop-while [true] [1]) !! not callable
(split-at 1 [1 2 3]) => [[1] [2 3]]
(split-at 9 [1]) => [[1] []]
(split-at "1" [1]) !! expects a number of items
(split-with even? [2 3 4]) => [[2] [3 4]]
(split-with even? []) => [[] []]
(split-with even? 1) !! split-with: expects a collection
(subvec [1 2 3 4] 1 3) => [2 3]
(subvec [1 2] 1) => [2]
(subvec [1] 0 5) !! subvec: the part is not within a vector of 1 items
(subvec "abc" 1) !! subvec: expects a vector
(peek [1 2]) => 2
(peek []) => nil
(peek {:a 1}) !! peek: expects a vector, got a map
(pop [1 2]) => [1]
(pop []) => []
(pop "ab") !! pop: expects a vector
(find even? [1 2 4]) => 2
(find :a [{:a nil} {:a 1}]) => {:a 1}
(find even? []) => nil
(find {:a 1} :a) => [:a 1]
(find {"a" 1} :a) => [:a 1]
(find {:a 1} :b) => nil
(find 1 [1]) !! not callable
(find even? 1) !! find: expects a collection
(subvec [1 2 3] (/ 2 2)) => [2 3]
(nth [1 2 3] (/ 4 2)) => 3
